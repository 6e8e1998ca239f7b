/* test_loader.c: plugins are found by manifest, checked before their code runs, activated whole or
 * not at all; whatever is wrong with one is said and leaves the others working.
 *
 * The loader's state is the process's, so main() lays out one folder with every case and the tests
 * look at it in turn. TENON_TEST_PLUGINS names the folder with the plugins that the build made. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tenon/plugin.h>
#include <tenon/error.h>
#include <tenon/runtime.h>

static char folder[] = "/tmp/tenon-loader-XXXXXX";
static const char *built;

static void path_in_folder(char dst[PATH_MAX], const char *name) {
    int n = snprintf(dst, PATH_MAX, "%s/%s", folder, name);
    assert_true(n > 0 && n < PATH_MAX);
}

static void write_file(const char *name, const char *text, mode_t mode) {
    char path[PATH_MAX];
    path_in_folder(path, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static void link_library(const char *name) {
    char from[PATH_MAX], to[PATH_MAX];
    path_in_folder(to, name);
    int n = snprintf(from, sizeof from, "%s/%s", built, name);
    assert_true(n > 0 && n < PATH_MAX);
    assert_int_equal(symlink(from, to), 0);
}

/* A folder entry as an installed plugin has: library and manifest. */
static void add_plugin(const char *name, const char *abi) {
    char file[64], text[512];
    snprintf(file, sizeof file, "tenon_%s.so", name);
    link_library(file);
    snprintf(text, sizeof text,
             "{\"manifest\": 1, \"name\": \"%s\", \"version\": \"3.2.1\", \"library\": \"%s\",\n"
             " \"abi\": %s, \"devices\": [\"%s\"], \"unknown\": {\"later\": [1, null, true]}}\n",
             name, file, abi, name);
    snprintf(file, sizeof file, "tenon_%s.json", name);
    write_file(file, text, 0644);
}

static tn_plugin_status status_of(const char *name) {
    tn_plugin_status s;
    for (int32_t i = 0; tn_plugin_at(i, &s) == TN_OK; i++)
        if (strcmp(s.name, name) == 0) return s;
    fail_msg("plugin '%s' is not listed", name);
    return s;
}

static void assert_mentions(const char *text, const char *part) {
    assert_non_null(text);
    if (!strstr(text, part)) fail_msg("'%s' does not mention '%s'", text, part);
}

static void assert_device_fails(const char *name, const char *part) {
    tn_device d;
    assert_int_equal(tn_device_parse(name, &d), TN_E_DEVICE);
    assert_mentions(tn_error_last()->message, part);
}

/* ---- Finding -----------------------------------------------------------------------------------*/

static void finding_runs_no_code(void **state) {
    (void)state;
    tn_plugin_status s = status_of("probe");
    assert_int_equal(s.active, 0);
    assert_null(s.problem);
    assert_string_equal(s.version, "3.2.1");
}

static void broken_manifests_are_explained(void **state) {
    static const char *const cases[][2] = {
        {"comma.json", "line 2"},       {"twice.json", "same name twice"},
        {"format.json", "must be 1"},   {"climbs.json", "beside the manifest"},
        {"lacks.json", "lacks"},        {"kind.json", "must be text"},
        {"empty.json", "an object is"}, {"utf8.json", "not UTF-8"},
        {"world.json", "everybody"},    {"fraction.json", "small whole number"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tn_plugin_status s = {0};
        int32_t k = 0;
        while (tn_plugin_at(k, &s) == TN_OK && !strstr(s.path, cases[i][0])) k++;
        assert_mentions(s.path, cases[i][0]);
        assert_mentions(s.problem, cases[i][1]);
        assert_mentions(s.problem, folder);
    }
}

static void unknown_device_says_where_it_looked(void **state) {
    (void)state;
    assert_device_fails("nosuch", "nosuch");
    assert_int_equal(tn_plugin_at(-1, &(tn_plugin_status){0}), TN_E_INDEX);
    assert_int_equal(tn_plugin_at(1000, &(tn_plugin_status){0}), TN_E_INDEX);
    assert_mentions(tn_error_last()->message, "there is no plugin 1000");
    assert_int_equal(tn_plugin_at(0, NULL), TN_E_VALUE);
    assert_mentions(tn_error_last()->message, "a plugin's status needs a place to be put");
    assert_int_equal(tn_plugin_retire("nosuch"), TN_E_PLUGIN);
    assert_mentions(tn_error_last()->message, "no active plugin is called 'nosuch'");
    assert_int_equal(tn_plugin_retire(NULL), TN_E_PLUGIN);
    assert_mentions(tn_error_last()->message, "no active plugin is called 'NULL'");
}

/* ---- Loading -----------------------------------------------------------------------------------*/

static void versions_are_decided(void **state) {
    (void)state;
    /* By the manifest, before the library is mapped ... */
    assert_device_fails("manifestmajor", "ABI 2.0");
    /* ... and by the table, when the manifest is wrong. */
    char needs[64];
    snprintf(needs, sizeof needs, "needs plugin ABI %d.%d", TN_ABI_MAJOR, TN_ABI_MINOR + 1);
    assert_device_fails("newer", needs);
    assert_device_fails("major", "needs plugin ABI 2.0");
}

static void faults_leave_nothing_behind(void **state) {
    (void)state;
    assert_device_fails("refuses", "tenon_refuses.so refused to start: it found no hardware");
    assert_device_fails("half", "tenon_half.so could not activate: ");
    assert_device_fails("half", "on fire");
    assert_device_fails("half", "on fire"); /* the reason stays; the library is not tried again */
    assert_device_fails("noalloc", "tenon_noalloc.so could not activate: ");
    assert_device_fails("noalloc", "required functions");
    assert_device_fails("noactivate", "no activate function");
    assert_device_fails("gone", "could not be loaded");
    for (int32_t slot = 0; slot < TN_DEVICE_SLOTS; slot++) {
        const char *name = tn_device_name(slot);
        if (name) assert_string_not_equal(name, "half");
    }
    assert_int_equal(status_of("half").active, 0);
}

static void *parse_probe(void *ret) {
    tn_device d = {-1, -1};
    *(tn_status *)ret = tn_device_parse("probe:1", &d);
    return NULL;
}

static void threads_load_it_once(void **state) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    tn_status results[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, parse_probe, &results[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(results[i], TN_OK);
    }
    tn_plugin_status s = status_of("probe");
    assert_int_equal(s.active, 1);
    assert_string_equal(s.summary, "a device for the loader's tests");
}

static void device_holds_tensors(void **state) {
    const float values[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    float back[4] = {0};
    tn_device d;
    tn_tensor *t = NULL;
    (void)state;
    assert_int_equal(tn_device_parse("probe:1", &d), TN_OK);
    assert_int_equal(tn_device_count(d.slot), 2);
    assert_string_equal(tn_device_describe(d), "probe: host memory, no kernels");
    assert_int_equal(tn_tensor_new(TN_F32, d, 2, (const int64_t[]){2, 2}, &t), TN_OK);
    assert_int_equal(tn_tensor_write(t, values, sizeof values), TN_OK);
    assert_int_equal(tn_tensor_read(t, back, sizeof back), TN_OK);
    assert_memory_equal(values, back, sizeof values);
    tn_tensor_unref(&t);
    assert_device_fails("probe:2", "no index 2");
}

static void events_belong_to_a_device(void **state) {
    tn_device there;
    const tn_device cpu = {0, 0};
    tn_event *event = NULL, *other = NULL;
    tn_stream *stream = NULL;
    double ms;
    (void)state;
    assert_int_equal(tn_device_parse("probe:1", &there), TN_OK);
    assert_int_equal(tn_event_new(there, 0, &event), TN_OK);
    assert_int_equal(tn_event_new(cpu, 0, &other), TN_OK);
    assert_int_equal(tn_stream_default(cpu, &stream), TN_OK);
    assert_int_equal(tn_event_record(event, stream), TN_E_DEVICE);
    assert_mentions(tn_error_last()->message, "event and stream belong to different devices");
    assert_int_equal(tn_event_record(other, stream), TN_OK);
    assert_int_equal(tn_event_elapsed(event, other, &ms), TN_E_UNSUPPORTED);
    assert_mentions(tn_error_last()->message, "device 'probe' does not measure time");
    tn_stream_unref(&stream);
    tn_event_unref(&other);
    tn_event_unref(&event);
    assert_true(!stream && !other && !event);
}

static char said[64];
static int loader_was_free;

/* As a host language would that runs code of its users in the hook. */
static void listen(int32_t level, const char *text) {
    tn_plugin_status s;
    if (level < 2) return;
    snprintf(said, sizeof said, "%s", text);
    loader_was_free = tn_plugin_at(0, &s) == TN_OK;
}

static void plugins_may_talk_while_they_load(void **state) {
    const tn_host_hooks hooks = {.struct_size = sizeof hooks, .log = listen};
    const tn_host_hooks none = {.struct_size = sizeof none};
    tn_device d;
    (void)state;
    tn_host_set_hooks(&hooks);
    alarm(20); /* a deadlock ends the test */
    tn_status st = tn_device_parse("talks", &d);
    alarm(0);
    tn_host_set_hooks(&none);
    assert_int_equal(st, TN_OK);
    assert_string_equal(said, "device 1 of talks is warm");
    assert_true(loader_was_free);
}

static void an_older_table_is_filled_up(void **state) {
    tn_device d;
    (void)state;
    assert_int_equal(tn_device_parse("old", &d), TN_OK);
    assert_int_equal(tn_plugin_retire("old"), TN_OK); /* its `retire` reads as NULL */
}

static void paths_are_absolute_and_trusted(void **state) {
    char path[PATH_MAX];
    (void)state;
    assert_int_equal(tn_plugin_load("tenon_probe.so"), TN_E_PLUGIN);
    assert_mentions(tn_error_last()->message, "absolute");
    assert_int_equal(tn_plugin_load(NULL), TN_E_PLUGIN);
    path_in_folder(path, "nothing.so");
    assert_int_equal(tn_plugin_load(path), TN_E_PLUGIN);
    path_in_folder(path, "open.so");
    assert_int_equal(tn_plugin_load(path), TN_E_PLUGIN);
    assert_mentions(tn_error_last()->message, "everybody may write");
    path_in_folder(path, "tenon_probe.so");
    assert_int_equal(tn_plugin_load(path), TN_OK); /* active already */
}

static void retired_means_withdrawn(void **state) {
    (void)state;
    assert_int_equal(tn_plugin_retire("probe"), TN_OK);
    assert_int_equal(status_of("probe").active, 0);
    assert_mentions(status_of("probe").problem, "retired");
    assert_int_equal(tn_plugin_retire("probe"), TN_E_PLUGIN);
    assert_int_equal(tn_plugin_retire(NULL), TN_E_PLUGIN);
}

static void retired_and_loaded_again(void **state) {
    char path[PATH_MAX];
    (void)state;
    path_in_folder(path, "tenon_probe.so");
    for (int round = 0; round < 3; round++) {
        assert_int_equal(tn_plugin_load(path), TN_OK);
        assert_int_equal(status_of("probe").active, 1);
        assert_null(status_of("probe").problem);
        assert_int_equal(tn_plugin_retire("probe"), TN_OK);
    }
    assert_int_equal(status_of("probe").active, 0);
}

static int lay_out(void **state) {
    (void)state;
    built = getenv("TENON_TEST_PLUGINS");
    if (!built || !mkdtemp(folder)) return -1;
    static const char *const good[] = {"probe",   "newer",      "major", "refuses", "half",
                                       "noalloc", "noactivate", "old",   "talks"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        add_plugin(good[i], "{\"major\": 1, \"min_minor\": 0}");
    write_file("mm.json",
               "{\"manifest\": 1, \"name\": \"mm\", \"library\": \"tenon_probe.so\",\n"
               "\"abi\": {\"major\": 2, \"min_minor\": 0}, \"devices\": [\"manifestmajor\"]}",
               0644);
    write_file("gone.json",
               "{\"manifest\": 1, \"name\": \"gone\", \"library\": \"gone.so\",\n"
               "\"abi\": {\"major\": 1, \"min_minor\": 0}, \"devices\": [\"gone\"]}",
               0644);
    write_file("gone.so", "not a library", 0644);
    write_file("open.so", "not a library", 0666);
    write_file("comma.json", "{\"manifest\": 1,\n}", 0644);
    write_file("twice.json", "{\"manifest\": 1, \"manifest\": 1}", 0644);
    write_file("format.json", "{\"manifest\": 2, \"name\": \"x\"}", 0644);
    write_file("climbs.json",
               "{\"manifest\": 1, \"name\": \"x\", \"library\": \"../x.so\","
               "\"abi\": {\"major\": 1, \"min_minor\": 0}}",
               0644);
    write_file("lacks.json", "{\"manifest\": 1, \"name\": \"y\"}", 0644);
    write_file("kind.json", "{\"manifest\": 1, \"name\": 7}", 0644);
    write_file("fraction.json", "{\"manifest\": 1.5}", 0644);
    write_file("empty.json", "", 0644);
    write_file("utf8.json", "{\"name\": \"\xc3(\"}", 0644);
    write_file("world.json", "{}", 0666);
    write_file("readme.txt", "no manifest", 0644);
    return setenv("TENON_PLUGIN_PATH", folder, 1);
}

static int clear(void **state) {
    char command[PATH_MAX];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finding_runs_no_code),
        cmocka_unit_test(broken_manifests_are_explained),
        cmocka_unit_test(unknown_device_says_where_it_looked),
        cmocka_unit_test(versions_are_decided),
        cmocka_unit_test(faults_leave_nothing_behind),
        cmocka_unit_test(threads_load_it_once),
        cmocka_unit_test(device_holds_tensors),
        cmocka_unit_test(events_belong_to_a_device),
        cmocka_unit_test(plugins_may_talk_while_they_load),
        cmocka_unit_test(an_older_table_is_filled_up),
        cmocka_unit_test(paths_are_absolute_and_trusted),
        cmocka_unit_test(retired_means_withdrawn),
        cmocka_unit_test(retired_and_loaded_again),
    };
    return cmocka_run_group_tests(tests, lay_out, clear);
}
