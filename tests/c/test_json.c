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

static void assert_refused(const char *source, const char *words, int expected_line) {
    char seen[512];
    int line = 0;
    const char *fault = read(source, seen, &line);
    if (!fault) fail_msg("%s was read", source);
    assert_string_equal(fault, words);
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
    static const struct {
        const char *source, *words;
    } faulty[] = {
        {"", "an object is expected"},
        {"[]", "an object is expected"},
        {"{", "a string is expected"},
        {"{\"a\"}", "':' is expected"},
        {"{\"a\":}", "a value is expected"},
        {"{\"a\":", "the text ends early"},
        {"{\"a\":1,}", "a string is expected"},
        {"{a:1}", "a string is expected"},
        {"{\"a\":1}x", "there is more after the object"},
        {"{\"a\":1", "',' or '}' is expected"},
        {"{\"a\":1 \"b\":2}", "',' or '}' is expected"},
        {"{\"a\":01}", "a number starts with 0"},
        {"{\"a\":+1}", "a value is expected"},
        {"{\"a\":-}", "a number lacks digits"},
        {"{\"a\":1.}", "a number lacks digits"},
        {"{\"a\":.5}", "a value is expected"},
        {"{\"a\":1e}", "a number lacks digits"},
        {"{\"a\":tru}", "a value is expected"},
        {"{\"a\":NaN}", "a value is expected"},
        {"{\"a\":'x'}", "a value is expected"},
        {"{\"a\":\"x}", "a string has no end"},
        {"{\"a\":\"\\x\"}", "a backslash is followed by no escape"},
        {"{\"a\":\"\\u00g0\"}", "a backslash is followed by no escape"},
        {"{\"a\":\"\\u00", "a backslash is followed by no escape"},
        {"{\"a\":\"\\", "a backslash is followed by no escape"},
        {"{\"a\":\"\\ud800\"}", "half of a surrogate pair"},
        {"{\"a\":\"\\ud800\\u0041\"}", "half of a surrogate pair"},
        {"{\"a\":\"\\ud800\\ue000\"}", "half of a surrogate pair"},
        {"{\"a\":\"\\udc00\"}", "half of a surrogate pair"},
        {"{\"a\":\"\\u0000\"}", "a string holds a NUL character"},
        {"{\"a\":\"\t\"}", "a string holds a control character"},
        {"{\"a\":\"\037\"}", "a string holds a control character"},
        {"{\"a\":[1}", "',' or ']' is expected"},
        {"{\"a\":[1,]}", "a value is expected"},
        {"{\"a\":1,\"a\":2}", "an object has the same name twice"},
        {"{\"a\":\"\xc0\x80\"}", "a string is not UTF-8"},
        {"{\"a\":\"\xed\xa0\x80\"}", "a string is not UTF-8"},
        {"{\"a\":\"\xff\"}", "a string is not UTF-8"},
        {"{\"a\":\"\xe2\x82\"}", "a string is not UTF-8"},
        {"{\"a\":/**/1}", "a value is expected"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof faulty / sizeof faulty[0]; i++)
        assert_refused(faulty[i].source, faulty[i].words, 1);
    assert_refused("{\n\"a\": \"\\n\\n\",\n\"b\" 1}", "':' is expected", 3);
}

static void limits(void **state) {
    char deep[256], wide[2048] = "{", name[400] = "{\"";
    size_t at = 1;
    (void)state;
    strcpy(deep, "{\"a\":");
    memset(deep + 5, '[', 100);
    deep[105] = '\0';
    assert_refused(deep, "values are nested too deeply", 1);
    for (int i = 0; i < 70; i++)
        at += (size_t)snprintf(wide + at, sizeof wide - at, "\"k%d\":1,", i);
    assert_refused(wide, "an object has too many names", 1);
    memset(name + 2, 'n', 300);
    strcpy(name + 302, "\":1}");
    assert_refused(name, "names are too long", 1);
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
