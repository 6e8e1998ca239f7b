/* loop_tmpl.h: loops over elements of type T with a function of one to three C, included once for each
 * pair of types. */

static void LOOP(unary)(const tni_ffi_element *e, const tn_rows *r, int64_t begin, int64_t end) {
    C (*f)(C);
    memcpy(&f, &e->address, sizeof f);
    for (int64_t i = begin; i < end; i++)
        *TN_ROW(T, *r, 0, i) = (T)f((C)*TN_ROW(const T, *r, 1, i));
}

static void LOOP(binary)(const tni_ffi_element *e, const tn_rows *r, int64_t begin, int64_t end) {
    C (*f)(C, C);
    memcpy(&f, &e->address, sizeof f);
    for (int64_t i = begin; i < end; i++)
        *TN_ROW(T, *r, 0, i) = (T)f((C)*TN_ROW(const T, *r, 1, i), (C)*TN_ROW(const T, *r, 2, i));
}

static void LOOP(ternary)(const tni_ffi_element *e, const tn_rows *r, int64_t begin, int64_t end) {
    C (*f)(C, C, C);
    memcpy(&f, &e->address, sizeof f);
    for (int64_t i = begin; i < end; i++)
        *TN_ROW(T, *r, 0, i) = (T)f((C)*TN_ROW(const T, *r, 1, i), (C)*TN_ROW(const T, *r, 2, i),
                                    (C)*TN_ROW(const T, *r, 3, i));
}

#undef T
#undef C
#undef LOOP
