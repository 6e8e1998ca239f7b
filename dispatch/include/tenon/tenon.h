/* tenon/tenon.h: everything a C program needs. Link with `pkg-config --cflags --libs tenon`. */
#ifndef TENON_TENON_H
#define TENON_TENON_H

#include <tenon/autograd.h>
#include <tenon/device_ext.h>
#include <tenon/error.h>
#include <tenon/ffi.h>
#include <tenon/nn.h>
#include <tenon/ops.h>
#include <tenon/optim.h>
#include <tenon/program.h>
#include <tenon/random.h>
#include <tenon/runtime.h>
#include <tenon/tensor.h>

#endif
