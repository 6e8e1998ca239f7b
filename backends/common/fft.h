/* fft.h: the factors of Fourier transforms, in double precision. */
#ifndef FFT_H
#define FFT_H

/* exp(-2 pi i k / n), by an angle below pi / 4. */
TMPL_INLINE void fft_unit(int64_t k, int64_t n, double *ret_re, double *ret_im) {
    int64_t a = k % n * 8, eighth = n;
    double re_sign = 1, im_sign = -1;
    if (a > 4 * eighth) {
        a = 8 * eighth - a;
        im_sign = 1;
    }
    if (a > 2 * eighth) {
        a = 4 * eighth - a;
        re_sign = -1;
    }
    bool swap = a > eighth;
    if (swap) a = 2 * eighth - a;
    double x = 0.78539816339744830962 * (double)a / (double)eighth;
    *ret_re = re_sign * (swap ? sin(x) : cos(x));
    *ret_im = im_sign * (swap ? cos(x) : sin(x));
}

/* The smallest length from n on that has the factors 2, and one 3 or 5. */
TMPL_INLINE int64_t fft_easy_length(int64_t n) {
    int64_t best = 1;
    while (best < n) best *= 2;
    const int64_t parts[] = {3, 5, 9, 15};
    for (int i = 0; i < 4; i++) {
        int64_t c = parts[i];
        while (c < n) c *= 2;
        best = c < best ? c : best;
    }
    return best;
}

#endif
