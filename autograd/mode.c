/* mode.c: the calling thread's modes: recording, inference, anomaly detection.
 *
 * Recording is on when tni_tls.no_grad is 0. Inference mode turns it off too, and keeps the value that
 * it found in the upper bits of tni_tls.inference, so that the two modes may be nested in any order. */
#include "tape_priv.h"

int tn_grad_enabled(void) { return tni_tls.no_grad == 0; }

int tn_grad_set_enabled(int on) {
    int old = tni_tls.no_grad == 0;
    tni_tls.no_grad = on ? 0 : 1;
    return old;
}

int tn_inference_enabled(void) { return tni_tls.inference != 0; }

int tn_inference_set_enabled(int on) {
    int old = tni_tls.inference != 0;
    if (on && !old) {
        tni_tls.inference = 1u | tni_tls.no_grad << 1;
        tni_tls.no_grad = 1;
    } else if (!on && old) {
        tni_tls.no_grad = tni_tls.inference >> 1;
        tni_tls.inference = 0;
    }
    return old;
}

int tn_anomaly_get(void) { return (tni_agt.detect_anomaly ? 1 : 0) | (tni_agt.check_nan ? 2 : 0); }

int tn_anomaly_set(int on, int check_nan) {
    int old = tn_anomaly_get();
    tni_agt.detect_anomaly = on != 0;
    tni_agt.check_nan = on && check_nan;
    return old;
}
