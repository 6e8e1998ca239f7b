/* graph.cu: what a graph's launch begins with. */
#include "device.h"

KERNEL(graph_draws, cuda_draws_args) {
    if (cuda_thread() == 0) *a.launch = a.draws;
}
