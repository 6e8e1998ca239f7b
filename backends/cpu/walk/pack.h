/* pack.h: packed row-major copies of strided tensors, for kernels that want one. */
#ifndef TENON_CPU_PACK_H
#define TENON_CPU_PACK_H

#include <tenon/plugin.h>

/* v's elements row-major: v's own memory when it is packed already, else a copy in scratch
 * memory. */
tn_status cpu_packed(const tn_call *call, const tn_view *v, const void **ret_data);

#endif
