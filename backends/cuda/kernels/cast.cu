/* cast.cu: conversions from one real element type to every other one (common/cast.h).
 *
 * types: all */
#include "device.h"

#include "cast.h"
