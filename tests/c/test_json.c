/* test_json.c: the manifest reader takes what RFC 8259 allows and refuses the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "../../plugins/json_priv.h"

/* Collects "path=value;" for each leaf. */
static const char *collect(void *ctx, const char *path, const tni_json_value *v) {
    char *text = ctx;
    size_t at = strlen(text);
    const char *shown = v->text ? v->text : v->boolean ? "true" : "false";
    snprintf(text + at, 512 - at, "%s=%s;", path, shown);
    return NULL;
}

static const char *read(const char *source, char seen[512], int *line) {
    static char buffer[4096];
    size_t n = strlen(source);
    assert_true(n < sizeof buffer);
    memcpy(buffer, source, n + 1);
    seen[0] = '\0';
    return tni_json_read(buffer, n, collect, seen, line);
}

static void assert_reads(const char *source, const char *expected) {
    char seen[512];
    int line;
    const char *fault = read(source, seen, &line);
    if (fault) fail_msg("%s: %s", source, fault);
    assert_string_equal(seen, expected);
}

static void assert_refused(const char *source, int expected_line) {
    char seen[512];
    int line = 0;
    if (!read(source, seen, &line)) fail_msg("%s was read", source);
    assert_int_equal(line, expected_line);
}

static void values(void **state) {
    (void)state;
    assert_reads("{}", "");
    assert_reads(" {\"a\" : 1 , \"b\":{\"c\":[true,null,\"x\"]}}\r\n",
                 "a=1;b.c[]=true;b.c[]=null;b.c[]=x;");
    assert_reads("{\"a\":[], \"b\":{}, \"c\":[[-0.5e+3]]}", "c[][]=-0.5e+3;");
}

static void strings(void **state) {
    (void)state;
    assert_reads("{\"a\":\"q\\\"\\\\\\/\\t\\u00e9\\ud83d\\ude00\"}",
                 "a=q\"\\/\t\xc3\xa9\xf0\x9f\x98\x80;");
    assert_reads("{\"a\\n\\n\\nb\":\"\xe2\x82\xac\"}", "a\n\n\nb=\xe2\x82\xac;");
}

static void refusals(void **state) {
    static const char *const faulty[] = {
        "",
        "[]",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\":1}x",
        "{\"a\":01}",
        "{\"a\":+1}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":1e}",
        "{\"a\":tru}",
        "{\"a\":NaN}",
        "{\"a\":'x'}",
        "{\"a\":\"x}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\udc00\"}",
        "{\"a\":\"\\u0000\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":[1}",
        "{\"a\":[1,]}",
        "{\"a\":1,\"a\":2}",
        "{\"a\":\"\xc0\x80\"}",
        "{\"a\":\"\xed\xa0\x80\"}",
        "{\"a\":\"\xff\"}",
        "{\"a\":\"\xe2\x82\"}",
        "{\"a\":/**/1}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof faulty / sizeof faulty[0]; i++) assert_refused(faulty[i], 1);
    assert_refused("{\n\"a\": \"\\n\\n\",\n\"b\" 1}", 3);
}

static void limits(void **state) {
    char deep[256], wide[2048] = "{", name[400] = "{\"";
    size_t at = 1;
    (void)state;
    strcpy(deep, "{\"a\":");
    memset(deep + 5, '[', 100);
    deep[105] = '\0';
    assert_refused(deep, 1);
    for (int i = 0; i < 70; i++)
        at += (size_t)snprintf(wide + at, sizeof wide - at, "\"k%d\":1,", i);
    assert_refused(wide, 1);
    memset(name + 2, 'n', 300);
    strcpy(name + 302, "\":1}");
    assert_refused(name, 1);
}

/* Every prefix and every one-byte change of a manifest is read or refused, and nothing worse. */
static void mangled(void **state) {
    static const char good[] = "{\"manifest\":1,\"abi\":{\"major\":1},\"d\":[\"c\\u00e9\",-1.5e3]}";
    char text[sizeof good], seen[512];
    int line;
    (void)state;
    for (size_t n = 0; n < sizeof good - 1; n++) {
        memcpy(text, good, n);
        text[n] = '\0';
        assert_non_null(read(text, seen, &line));
        for (int c = 1; c < 256; c++) {
            memcpy(text, good, sizeof good);
            text[n] = (char)c;
            (void)read(text, seen, &line);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values), cmocka_unit_test(strings), cmocka_unit_test(refusals),
        cmocka_unit_test(limits), cmocka_unit_test(mangled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
