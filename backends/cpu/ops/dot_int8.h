/* dot_int8.h: sums of products of a tile, two rows by four columns, for quantize.c. Included once for each
 * way to compute them, with DOT_NAME, DOT_TARGET, DOT_VEC, DOT_STEP (numbers at a time), DOT_A and DOT_W
 * (loads), DOT_ADD(sum, a, w) and DOT_ROW(s, to): the four sums of a row. */
DOT_TARGET static void DOT_NAME(const int16_t *const *a, const int8_t *const *w, int64_t k,
                                int32_t (*ret)[4]) {
    DOT_VEC s[2][4];
    memset(s, 0, sizeof s);
    for (int64_t i = 0; i < k; i += DOT_STEP) {
        DOT_VEC a0 = DOT_A(a[0] + i), a1 = DOT_A(a[1] + i);
        TMPL_UNROLL
        for (int c = 0; c < 4; c++) {
            DOT_VEC b = DOT_W(w[c] + i);
            s[0][c] = DOT_ADD(s[0][c], a0, b);
            s[1][c] = DOT_ADD(s[1][c], a1, b);
        }
    }
    DOT_ROW(s[0], ret[0]);
    DOT_ROW(s[1], ret[1]);
}

#undef DOT_NAME
#undef DOT_TARGET
#undef DOT_VEC
#undef DOT_STEP
#undef DOT_A
#undef DOT_W
#undef DOT_ADD
#undef DOT_ROW
