/* header_test: includes one public header, named by the build, and nothing before it. A header that
 * leans on another's include, or that is not clean in this language, does not compile. */
#include HEADER

/* A translation unit must hold a declaration. */
typedef int header_test_compiled;
