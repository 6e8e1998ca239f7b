/* test_sha256.c: hashes of files of the lengths at which the padding changes its form, beside those of
 * Python's hashlib; and of a file that cannot be read. */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../plugins/sha256_priv.h"

/* Of the bytes (7 i * i + 31 i + 5) mod 251. */
static const struct {
    int length;
    const char *text;
} hashes[] = {
    {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {1, "e77b9a9ae9e30b0dbdb6f510a264ef9de781501d7b6b92ae89eb059c5ab743db"},
    {3, "c82765f04a73e4f266ee5351c099dfbaa75d57578a217ba7c45f7850f9b9bb24"},
    {55, "1797cb8c98714088b359dc6f4e4449b9120e7a1afab1fb7cdaa7e0792c6c1963"},
    {56, "7271c2847931162f350d4272378af2607faa324794d5d18e8e916056659ebb28"},
    {57, "ea79e5d72ccdea2ff708f9753b752698f7bb9266ea981a2e57dbfd097b41a855"},
    {63, "fc43cb3b6ea97bd81a3f6b681ea128d091fc41dd780cf1fb1f4e50cad9306526"},
    {64, "5a2f8cfcb7bfa356517e355cba5a1268ceb916de3d0472ce57a2367470648a0e"},
    {65, "3fc51f35496aed34e3bb5ebdadc1f0f70d574cf1983bd0fa4a49a115ed444259"},
    {119, "5c8448922cc874d5218d5da456b1dc301dfb0f15382a151b5d8605ab84b91ed5"},
    {120, "561201ceee14bff7ca7d4c8eb0d70aa3dff6d50afcd10e02422be9f627df93f3"},
    {127, "2c951ffc1611e5b1f62e860b4928dc9654b22e808f53db920adff298fcc459c7"},
    {128, "51deada7054f5bf879d6f6219b3f09975c933d0b00f87e5d16bcd0115d79882e"},
    {200, "0be10a436dd37d567197c1a9b8876964c7f35d39505331e3786ce64260c317c9"},
    {33000, "c4f72c049389fc38133fdbd188d59806864711cc5c880cc31aae65859396372a"},
};

static char path[] = "/tmp/tenon-sha256-XXXXXX";

static int make(void **state) {
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int drop(void **state) {
    (void)state;
    return unlink(path);
}

static void lengths(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof hashes / sizeof *hashes; k++) {
        char text[TNI_SHA256_TEXT];
        const char *why = NULL;
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        for (int64_t i = 0; i < hashes[k].length; i++)
            assert_int_not_equal(fputc((int)((7 * i * i + 31 * i + 5) % 251), file), EOF);
        assert_int_equal(fclose(file), 0);
        assert_true(tni_sha256_file(path, text, &why));
        assert_string_equal(text, hashes[k].text);
    }
}

static void no_file(void **state) {
    (void)state;
    char text[TNI_SHA256_TEXT];
    const char *why = NULL;
    assert_false(tni_sha256_file("/nowhere/at/all", text, &why));
    assert_non_null(why);
    why = NULL;
    assert_false(tni_sha256_file("/dev/null", text, &why)); /* no regular file */
    assert_non_null(why);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lengths), cmocka_unit_test(no_file)};
    return cmocka_run_group_tests(tests, make, drop);
}
