/* launch_priv.h: failures of work that runs behind the host's back. */
#ifndef TENON_LAUNCH_PRIV_H
#define TENON_LAUNCH_PRIV_H

#include "registry_priv.h"

/* What a device's failures need, by index; NULL: out of memory. */
struct tni_launches *tni_launches_new(int32_t count);
void tni_launches_delete(struct tni_launches *launches);

/* A call that waited for work on a device returned `st`: what its caller is told. A failure that was
 * kept comes first, TN_ASYNC without an operator's name gets one. `everything`: the whole device was
 * waited for. */
tn_status tni_waited(tn_device device, bool everything, tn_status st);
/* The same for a call that only asked, or waited for some of the work. */
tn_status tni_looked(tn_device device, tn_status st);
/* A call for which nobody waits returned `st`: TN_ASYNC is kept for the next one who does. */
void tni_keep_async(const tni_device *dev, int32_t index, tn_status st);

#endif
