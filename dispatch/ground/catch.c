/* catch.c: what happens to an exception of C++ that leaves a plugin's function.
 *
 * While an exception looks for somebody who takes it, the unwinder asks the "personality" of each
 * function on the stack (Itanium C++ ABI, Exception Handling, level I). That of the functions with a
 * call in tni_caught() is tni_catch below. It takes everything, writes the thread's error, and lets the
 * function go on behind the call as if the status had been returned. Core stays C and needs no C++
 * library; where one threw, it is in the process and is asked for the exception's type. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#include "catch_priv.h"
#include "os_priv.h"

/* ---- The C++ library ---------------------------------------------------------------------------*/

/* The beginning of a std::type_info, and of one whose class has a single base. */
typedef struct type_info {
    const void *const *vtable;
    const char *name;
    const struct type_info *base; /* only where `vtable` is that of classes with one base */
} type_info;

/* A std::exception: its third virtual function is what(). */
typedef struct thrown {
    const char *(*const *vtable)(const struct thrown *);
} thrown;

typedef struct cxx {
    void *(*begin_catch)(void *e);
    void (*end_catch)(void);
    const type_info *(*current_type)(void);
    char *(*demangle)(const char *name, char *buffer, size_t *size, int *ret_status);
    const void *const
        *one_base; /* vtable of a type_info with one base, before its first function */
} cxx;

static bool find(void *library, const char *name, void *ret_address) {
    void *address = tni_os_library_symbol(library, name);
    memcpy(ret_address, &address, sizeof address);
    return address != NULL;
}

/* The C++ library that is in the process; false: none, or one that is linked into a plugin. */
static bool find_cxx(cxx *ret) {
    static const char *const names[] = {"libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"};
    void *library = NULL;
    for (int i = 0; i < TN_COUNT(names) && !library; i++)
        library = tni_os_library_present(names[i]);
    return library && find(library, "__cxa_begin_catch", &ret->begin_catch) &&
           find(library, "__cxa_end_catch", &ret->end_catch) &&
           find(library, "__cxa_current_exception_type", &ret->current_type) &&
           find(library, "__cxa_demangle", &ret->demangle) &&
           find(library, "_ZTVN10__cxxabiv120__si_class_type_infoE", &ret->one_base);
}

/* Whether an object of the type is a std::exception from its first byte on. */
static bool is_exception(const cxx *lib, const type_info *type) {
    while (strcmp(type->name, "St9exception") != 0) {
        if (type->vtable != lib->one_base + 2) return false;
        type = type->base;
    }
    return true;
}

static void describe(const cxx *lib, const type_info *type, const void *object, size_t size,
                     char *ret_text) {
    int status = 0;
    char *name = lib->demangle(type->name, NULL, NULL, &status);
    const thrown *t = is_exception(lib, type) ? object : NULL;
    snprintf(ret_text, size, "%s%s%s", name ? name : type->name, t ? ": " : "",
             t ? t->vtable[2](t) : "");
    free(name);
}

/* ---- Catching ----------------------------------------------------------------------------------*/

static const uint64_t cxx_classes[] = {
    UINT64_C(0x474e5543432b2b00), /* "GNUCC++\0" */
    UINT64_C(0x434c4e47432b2b00), /* "CLNGC++\0" */
};

/* Destroys the exception and leaves its text as the thread's error. */
static tn_status take(struct _Unwind_Exception *e, uint64_t class) {
    cxx lib;
    char text[512] = "of unknown type";
    bool is_cxx = class == cxx_classes[0] || class == cxx_classes[1];
    tn_status st = TN_E_STATE;
    if (is_cxx && find_cxx(&lib)) {
        lib.begin_catch(e);
        const type_info *type = lib.current_type();
        if (type) {
            describe(&lib, type, e + 1, sizeof text, text); /* the object lies behind the header */
            if (strcmp(type->name, "St9bad_alloc") == 0) st = TN_E_MEMORY;
        }
        lib.end_catch();
    } else {
        _Unwind_DeleteException(e);
    }
    return tni_error_thrown(st, text);
}

/* A personality routine. Named from assembly, therefore not static. */
_Unwind_Reason_Code tni_catch(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
                              struct _Unwind_Exception *e, struct _Unwind_Context *context);
__attribute__((used)) _Unwind_Reason_Code tni_catch(int version, _Unwind_Action actions,
                                                    _Unwind_Exception_Class class,
                                                    struct _Unwind_Exception *e,
                                                    struct _Unwind_Context *context) {
    /* the end of a thread passes through */
    if (version != 1 || (actions & _UA_FORCE_UNWIND)) return _URC_CONTINUE_UNWIND;
    if (actions & _UA_SEARCH_PHASE) return _URC_HANDLER_FOUND;
    if (!(actions & _UA_HANDLER_FRAME)) return _URC_CONTINUE_UNWIND;
    tn_status st = take(e, class);
    /* On behind the call; the register is that of a function's value. */
    _Unwind_SetGR(context, __builtin_eh_return_data_regno(0), (_Unwind_Word)st);
    _Unwind_SetIP(context, _Unwind_GetIP(context));
    return _URC_INSTALL_CONTEXT;
}
