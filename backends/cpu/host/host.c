/* host.c: the table of functions that everything in the plugin calls core through. */
#include "cpu_priv.h"

const tn_host *cpu_host;
