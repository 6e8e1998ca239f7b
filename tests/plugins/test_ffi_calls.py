"""tenon.ffi: functions that take tensors as arrays, structs, callbacks; declarations; limits."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import as_user
import memory
import numpy as np
import pytest
import tenon as tn
from test_ffi import ERF, LIBM, missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "libffi is there"),
    pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler"),
]

AXPY = "int axpy(int n, double a, const double x[n], double y[n])"
DECLARATIONS = """
    struct point { double x, y; };
    struct shape { char tag; struct point corner[2]; const double *weights; int32_t n; };
    struct counter;
    enum mode { QUIET, LOUD = 4, LOUDER };
    struct point middle(struct point a, struct point b);
    void move(struct point *p, double dx);   // moves it
    double weigh(const struct shape *s);
    int counter_open(struct counter **out, int start);
    int counter_next(struct counter *c);
    void counter_close(struct counter *c);
    struct point walk(struct point (*step)(struct point), struct point p);
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("ffi") / "sample.so"
    source = Path(__file__).with_name("ffi_sample.c")
    subprocess.run(["cc", "-O1", "-fPIC", "-shared", str(source), "-o", str(library)], check=True)
    return str(library)


@pytest.fixture(scope="module")
def sample(path: str) -> Any:
    return tn.ffi.library(path).cdef(DECLARATIONS)


def doubles(n: int) -> tn.Tensor:
    return tn.arange(n, dtype=tn.float64)


# -- arrays and lengths ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declaration", "options"),
    [
        (AXPY, {}),
        (
            "int axpy(int n, double a, const double *x, double *y)",
            {"lengths": {"x": "n", "y": "n"}},
        ),
    ],
)
def test_lengths_are_taken_or_checked(path: str, declaration: str, options: Any) -> None:
    axpy = tn.ffi.bind(path, declaration, returns="status", **options)
    x, y = doubles(5), tn.ones(5, dtype=tn.float64)
    read, written = x._version, y._version
    assert axpy(2.0, x, y) is None
    np.testing.assert_allclose(y.numpy(), 1 + 2 * np.arange(5.0))
    assert (x._version, y._version) == (read, written + 1)
    axpy(3, -2.0, x, y)  # the first three only
    assert y.tolist() == [1, 1, 1, 7, 9]
    axpy(a=0.0, x=x, y=y, n=2)
    axpy(0.0, x, y=y)
    for args, words in [
        ((6, 1.0, x, y), r"argument 'x' \(position 3\) has 5 elements, and axpy takes 6"),
        ((1.0, x, y[:4]), r"argument 'y' \(position 4\) has 4 elements, and axpy takes 5"),
        ((-1, 1.0, x, y), "length below 0"),
    ]:
        with pytest.raises(ValueError, match=words):
            axpy(*args)
    assert axpy(1.0, x[:0], y[:0]) is None


def test_two_dimensions(path: str) -> None:
    gemv = tn.ffi.bind(
        path,
        "void gemv(size_t rows, size_t columns, const float a[rows][columns], "
        "const float x[columns], float y[rows])",
    )
    a, x, y = tn.randn(3, 4), tn.randn(4), tn.empty(3)
    gemv(a, x, y)
    np.testing.assert_allclose(y.numpy(), a.numpy() @ x.numpy(), rtol=1e-5)
    with pytest.raises(ValueError, match="must be a tensor of 2 dimensions"):
        gemv(a.reshape(12), x, y)
    with pytest.raises(ValueError, match="argument 'x' .* has 3 elements"):
        gemv(a, x[:3], y)


def test_lengths_that_nothing_tells(path: str) -> None:
    gemv = tn.ffi.bind(
        path, "void gemv(size_t r, size_t c, const float a[r*c], const float *x, float *y)"
    )
    with pytest.raises(TypeError, match="lacks argument 'r'"):
        gemv(a=tn.ones(4), x=tn.ones(2), y=tn.ones(2))
    y = tn.zeros(2)
    gemv(2, 2, tn.ones(4), tn.ones(2), y)
    assert y.tolist() == [2, 2]
    with pytest.raises(ValueError, match="'a' .* has 4 elements, and gemv takes 6"):
        gemv(2, 3, tn.ones(4), tn.ones(3), y)


def test_what_memory_is_refused(path: str) -> None:
    axpy = tn.ffi.bind(path, AXPY)
    x, y = doubles(4), doubles(4)
    readonly = tn.from_numpy(np.broadcast_to(np.zeros(4), (4,)).view())
    for bad, error, words in [
        (tn.ones(4), TypeError, "must be a tensor of float64, not of float32"),
        (None, TypeError, r"must not be None; nullable=\['y'\]"),
        ([1.0], TypeError, "must be a tensor of float64, not list"),
        (1234, TypeError, "must be a tensor of float64, not int"),
        (b"12345678" * 4, TypeError, "must be a tensor of float64, not bytes"),
        (doubles(8)[::2], ValueError, "not contiguous"),
        (doubles(4).requires_grad_(), RuntimeError, "requires grad"),
    ]:
        with pytest.raises(error, match=rf"axpy\(\): argument 'y' \(position 4\).*{words}"):
            axpy(1.0, x, bad)
    if readonly.numpy().flags.writeable is False:
        with pytest.raises(ValueError, match="read-only"):
            axpy(1.0, x, readonly)
    assert y.tolist() == [0, 1, 2, 3]
    assert axpy(1.0, x, y) == 0 and axpy(1.0, y, y) == 0


def test_copies_of_strided_tensors(path: str) -> None:
    axpy = tn.ffi.bind(path, AXPY, copy=True)
    base = doubles(8)
    axpy(1.0, doubles(8)[1::2], base[::2])
    assert base.tolist() == [1, 1, 5, 3, 9, 5, 13, 7]


def test_tensors_of_a_device(path: str, tmp_path: Path) -> None:
    source = as_user.EXAMPLES / "device"
    as_user.build(source / "acme.c", source / "tenon_acme.json", tmp_path)
    script = f"""
import tenon as tn
x, y = (tn.ones(3, dtype=tn.float64, device="acme") for _ in range(2))
try:
    tn.ffi.bind({path!r}, {AXPY!r})(1.0, x, y)
except RuntimeError as err:
    assert "argument 'x' (position 3) is on device 'acme'" in str(err), err
else:
    raise AssertionError
tn.ffi.bind({path!r}, {AXPY!r}, copy=True)(1.0, x, y)
assert y.device.type == "acme" and y.cpu().tolist() == [2, 2, 2]
"""
    done = as_user.run(tmp_path, "-c", script, TENON_FALLBACK="allow")
    assert done.returncode == 0, done.stderr


# -- numbers and texts ----------------------------------------------------------------------------


def test_every_kind_of_number(path: str) -> None:
    numbers = tn.ffi.bind(
        path,
        "double numbers(bool b, signed char c, unsigned char uc, short int s, unsigned short us, "
        "int i, unsigned u, long l, long unsigned int ul, float f, double d)",
    )
    values = [True, -5, 200, -300, 60000, -70000, 1 << 31, -(1 << 40), 1 << 63, 0.5, 1e-3]
    want = sum(float(v) for v in values)
    assert numbers(*values) == pytest.approx(want, rel=1e-15)
    numpy_values = [np.bool_(True), np.int8(-5), np.uint8(200), np.int16(-300), np.uint16(60000)]
    assert numbers(*numpy_values, *values[5:]) == pytest.approx(want, rel=1e-15)
    for at, bad, error in [
        (1, 128, OverflowError), (2, -1, OverflowError), (4, 1 << 16, OverflowError),
        (6, -1, OverflowError), (7, 1 << 63, OverflowError), (8, 1 << 64, OverflowError),
        (0, 0.5, TypeError), (5, 1.0, TypeError), (5, "1", TypeError), (9, 1j, TypeError),
        (10, None, TypeError), (10, [1], TypeError),
    ]:  # fmt: skip
        with pytest.raises(error, match=rf"\(position {at + 1}\)"):
            numbers(*values[:at], bad, *values[at + 1 :])


def test_narrow_results(path: str) -> None:
    narrow = tn.ffi.bind(path, "int8_t narrow(int8_t x)")
    wrap = tn.ffi.bind(path, "uint8_t wrap(uint8_t x)")
    assert narrow(-100) == -101 and narrow(tn.tensor([-100, 1])).tolist() == [-101, 0]
    assert wrap(0) == 255 and wrap(tn.tensor([0, 5])).tolist() == [255, 4]
    assert wrap(tn.tensor([0])).dtype == tn.uint8
    assert tn.ffi.bind(path, "uint64_t highest(void)")() == (1 << 64) - 1


def test_texts(path: str) -> None:
    count = tn.ffi.bind(path, "size_t count(const char *text)")
    assert count("größe") == 7 and count(b"abc") == 3 and count("") == 0
    with pytest.raises(ValueError, match="null character"):
        count("a\0b")
    with pytest.raises(TypeError, match="must be str or bytes, not int"):
        count(3)
    greet = tn.ffi.bind(path, "const char *greet(int formal)")
    assert greet(1) == "good day" and greet(0) is None
    maybe = tn.ffi.bind(path, "double maybe(const double *x)", nullable="x")
    assert maybe(None) == -1 and maybe(doubles(2)[1:]) == 1


def test_too_few_and_too_many(path: str) -> None:
    axpy = tn.ffi.bind(path, AXPY)
    x = doubles(2)
    for args, kwargs, words in [
        ((), {}, r"lacks argument 'a' \(position 2\)"),
        ((1, 1.0, x, x, x), {}, "takes 4 arguments, not 5"),
        ((1.0, x, x), {"q": 1}, "has no parameter 'q'"),
        ((1.0, x, x), {"a": 1}, "got parameter 'a' twice|lacks"),
    ]:
        with pytest.raises(TypeError, match=words):
            axpy(*args, **kwargs)


# -- results --------------------------------------------------------------------------------------


def test_return_conventions(path: str) -> None:
    axpy = tn.ffi.bind(path, AXPY, returns="status", status_text={3: "a is not a number"})
    with pytest.raises(RuntimeError, match="axpy.. returned status 3: a is not a number") as info:
        axpy(float("nan"), doubles(1), doubles(1))
    assert info.value.status == 3
    failing = tn.ffi.bind(path, "int failing(int code)", returns="errno")
    assert failing(0) == 7
    with pytest.raises(FileNotFoundError) as lost:
        failing(errno.ENOENT)
    assert lost.value.errno == errno.ENOENT and os.strerror(errno.ENOENT) in str(lost.value)
    find = tn.ffi.bind(path, "void *find(int known)", returns="null")
    assert find(1)
    with pytest.raises(FileNotFoundError):
        find(0)
    with pytest.raises(RuntimeError, match="returned NULL"):
        tn.ffi.bind(path, "void *nothing(void)", returns="null")()
    for returns, declaration in [
        ("status", "double use(double)"),
        ("null", "int failing(int code)"),
        ("never", "int failing(int code)"),
    ]:
        with pytest.raises(ValueError, match="returns"):
            tn.ffi.bind(path, declaration, returns=returns)


# -- structs and pointers -------------------------------------------------------------------------


def test_structs(sample: Any) -> None:
    a, b = sample.point(1.0, 2.0), sample.point(x=3, y=6)
    m = sample.middle(a, b)
    assert (m.x, m.y) == (2, 4) and repr(m) == "point(x=2.0, y=4.0)"
    sample.move(m, 0.5)
    assert m.x == 2.5
    s = sample.shape(tag=2, corner=[a, b], n=3)
    s.weights = doubles(3)
    gc.collect()
    assert sample.weigh(s) == 2 + 3 * 3.0
    s.corner[1].x = 5.0  # a copy, as lists are
    sample.move(s.corner[0], 1.0)
    assert sample.weigh(s) == 11 and s.weights.tolist() == [0, 1, 2]
    with pytest.raises(AttributeError, match="no field 'z' in struct point"):
        a.z = 1
    with pytest.raises(TypeError, match="must be a number, not str"):
        a.x = "1"
    with pytest.raises(ValueError, match="takes 2 values, not 1"):
        s.corner = [a]
    with pytest.raises(TypeError, match=r"takes 2 values, not 3"):
        sample.point(1, 2, 3)
    with pytest.raises(TypeError, match=r"move\(\): argument 'p' .* must be a struct point"):
        sample.move(s, 1.0)
    with pytest.raises(TypeError, match=r"middle\(\): argument 'b' .* must be struct point"):
        sample.middle(a, 1.0)


def test_nested_struct_is_a_view() -> None:
    lib = tn.ffi.library().cdef("struct in { int a; }; struct out { short s; struct in i; };")
    o = lib.out(s=1)
    inner = o.i
    inner.a = 9
    assert o.i.a == 9
    del o
    gc.collect()
    assert inner.a == 9


def test_linked_structs() -> None:
    lib = tn.ffi.library().cdef("struct node { struct node *next; int v; };")
    a, b = lib.node(v=1), lib.node(v=2)
    a.next = b
    assert a.next is b and a.next.next is None
    b.next = a
    assert repr(a) == "node(next=node(next=node(...), v=2), v=1)"
    a.next = None
    assert repr(b) == "node(next=node(next=None, v=1), v=2)"


def test_opaque_pointers_and_enums(sample: Any) -> None:
    out = tn.ffi.Pointer()
    assert not out
    with pytest.raises(TypeError, match="must be a struct counter"):
        sample.counter_next(out)
    assert sample.counter_open(out, sample.LOUDER) == 0
    assert out and sample.counter_next(out) == 6 and sample.counter_next(out) == 7
    with pytest.raises(ValueError, match="unknown"):
        out.value
    with pytest.raises(TypeError, match="must be a struct point"):
        sample.move(out, 1.0)
    sample.counter_close(out)
    assert sample.QUIET == 0 and sample.LOUD == 4


# -- callbacks ------------------------------------------------------------------------------------


def test_qsort_with_a_python_callback() -> None:
    qsort = tn.ffi.bind(
        None,
        "void qsort(int32_t base[n], size_t n, size_t size, "
        "int (*compare)(const int32_t *a, const int32_t *b))",
    )
    v = tn.randint(-1000, 1000, (200,), dtype=tn.int32)
    want = sorted(v.tolist())
    qsort(v, 4, lambda a, b: a.value - b.value)
    assert v.tolist() == want


def test_what_callbacks_raise_comes_out(path: str) -> None:
    apply = tn.ffi.bind(path, "double apply(double (*fn)(double x, int i), double x, int times)")
    assert apply(lambda x, i: x * 2 + i, 1.0, 4) == 27
    calls = []

    def fails(x: float, i: int) -> float:
        calls.append(i)
        raise KeyError(i)

    with pytest.raises(KeyError):
        apply(fails, 1.0, 5)
    assert calls == [0]
    with pytest.raises(TypeError, match="result.* must be a number, not str"):
        apply(lambda x, i: "?", 1.0, 1)
    with pytest.raises(TypeError, match="must be a function, not int"):
        apply(3, 1.0, 1)


def test_callbacks_with_structs(sample: Any) -> None:
    def step(p: Any) -> Any:
        p.x += 1
        return p

    assert sample.walk(step, sample.point(1, 7)).x == 3
    with pytest.raises(TypeError, match="must be struct point"):
        sample.walk(lambda p: 1, sample.point())


def test_callbacks_that_c_keeps(path: str) -> None:
    lib = tn.ffi.library(path).cdef("void keep(double (*fn)(double)); double use(double x);")
    fn = lib.callback("keep", "fn", lambda x: x + 1)
    lib.keep(fn)
    gc.collect()
    assert lib.use(2.0) == 3.0


def test_pointers_of_callbacks_end_with_them() -> None:
    seen = []
    qsort = tn.ffi.bind(
        None, "void qsort(double *b, size_t n, size_t s, int (*f)(const double *, const double *))"
    )
    qsort(doubles(3), 3, 8, lambda a, b: seen.append(a) or 0)
    with pytest.raises(RuntimeError, match="ended with it"):
        seen[0].value
    with pytest.raises(TypeError, match="is const"):
        qsort(doubles(2), 2, 8, lambda a, b: setattr(a, "value", 1.0) or 0)


# -- threads --------------------------------------------------------------------------------------


def test_release_of_the_lock(path: str) -> None:
    flag = tn.zeros(1, dtype=tn.int32)
    wait = tn.ffi.bind(path, "int64_t wait_for(int32_t *flag, int64_t turns)", release_gil=True)
    left = []
    waiting = threading.Thread(target=lambda: left.append(wait(flag, 1 << 40)))
    waiting.start()
    time.sleep(0.01)  # with the lock held, this thread would not get on
    flag.fill_(1)
    waiting.join(60)
    assert left and left[0] > 0


def test_many_threads(path: str) -> None:
    apply = tn.ffi.bind(
        path, "double apply(double (*fn)(double x, int i), double x, int times)", release_gil=True
    )
    got = []

    def work(k: int) -> None:
        got.append(sum(apply(lambda x, i: x + k, 0.0, 50) for _ in range(20)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(got) == [0, 1000, 2000, 3000]


# -- declarations ---------------------------------------------------------------------------------

MALFORMED = [
    ("double erf(dobule)", 12, "there is no type 'dobule'"),
    ("double erf(double", 18, "',' or '\\)' is expected"),
    ("double erf double", 12, "'\\(' is expected"),
    ("double (double)", 8, "a function's name is expected"),
    ("int f(int, ...)", 12, "variable number of arguments"),
    ("int f(void x)", 13, "cannot be void"),
    ("int f(int x, int x)", 20, "two parameters are called 'x'"),
    ("int f(struct nowhere s)", 23, "struct nowhere is declared without its fields"),
    ("unsigned signed f(void)", 1, "these words make no type"),
    ("long double f(void)", 1, "long double"),
    ("int f(double x[m])", 16, "the length 'm' is no parameter"),
    ("int f(double m, double x[m])", 26, "a length is an integer"),
    ("int f(int n, double x[n)", 24, "']' is expected"),
    ("int f(int n, double x[0])", 24, "a number above 0"),
    ("struct s { int a : 3; };", 19, "bit-fields"),
    ("struct s { int a; int a; };", 24, "two fields are called 'a'"),
    ("struct s { };", 13, "a struct needs a field"),
    ("struct s { struct s inner; };", 26, "without its fields"),
    ("enum e { A, A };", 14, "there is a constant 'A' already"),
    ("enum e { A = 5000000000 };", 24, "is an int"),
    ("int ****f(void)", 9, "points too far"),
    ("#include <math.h>", 1, "a type is expected"),
    ("int x;", 6, "only functions"),
    ("int f(int a[", 13, "']' is expected"),
    ("typedef int int_t; typedef int int_t;", 37, "there is a type 'int_t' already"),
    (f"int {'n' * 101}(void)", 5, "the name is longer than 100 characters"),
    (f"void f(int (*a){'(int (*)' * 15}(void){')' * 15})", 137, "nested too deeply"),
    (f"struct s {{ int a{'[1]' * 16}; }};", 63, "nested too deeply"),
    ("struct s { int a[x]; };", 18, "a whole number is expected"),
    ("struct s { int a[1x]; };", 18, "a whole number is expected"),
    ("struct s { int a[0]; };", 19, "an array has 1 to 1048576 elements"),
    ("struct s { int a[1048577]; };", 25, "an array has 1 to 1048576 elements"),
    ("struct s { int a[2; };", 19, "']' is expected"),
    ("struct s { double a[1048576]; };", 29, "the struct is too large"),
    ("struct s { char a[1048576], b; };", 30, "the struct is too large"),
    ("struct s { int; };", 15, "a field's name is expected"),
    ("struct s { void a; };", 18, "a field cannot be void"),
    ("struct s { int a b; };", 18, "';' is expected"),
    ("struct s { int a; }; struct s { int b; };", 32, "struct s has its fields already"),
    ("struct s { struct s { int a; } b; };", 36, "struct s has its fields already"),
    (f"struct s {{ char {', '.join(f'c{i}' for i in range(257))}; }};", 1447, "at most 256 fields"),
    ("struct 3 { int a; };", 8, "the struct's name is expected"),
    ("enum 3 { A };", 6, "the enum's name is expected"),
    ("enum e { 3 };", 10, "a constant's name is expected"),
    ("enum e { A = x };", 14, "a whole number is expected"),
    ("enum e { A B };", 12, "',' or '}' is expected"),
    ("enum e { A = -2147483649 };", 25, "a constant of an enum is an int"),
    ("enum e { A = 2147483647, B };", 28, "a constant of an enum is an int"),
    ("enum e f(void)", 8, "there is no 'enum e'"),
    ("enum e { A }; enum e { B };", 23, "there is an 'enum e' already"),
    ("int f(int (*a b)(void))", 15, "'\\)' is expected"),
    ("int f(int (*a) b)", 16, "'\\(' is expected"),
    ("int f(int n, double x[n*n*n*n])", 29, "a length has at most 3 factors"),
    ("int f(double x[2147483648])", 26, "a length is a number above 0"),
    ("int f(double x[2147483647*2*2])", 30, "a length is a number above 0"),
    ("int f(double x[1][1][1][1][1])", 28, "an array has at most 4 lengths"),
    ("int f(struct nowhere s[2])", 26, "struct nowhere is declared without its fields"),
    ("int f(void a[2])", 16, "an array's element cannot be void"),
    ("struct nowhere f(void)", 18, "struct nowhere is declared without its fields"),
    ("void f(void, int)", 12, "a parameter cannot be void"),
    (f"int f({', '.join(['int'] * 33)})", 166, "a function has at most 32 parameters"),
    ("typedef int *;", 14, "the type's name is expected"),
    ("typedef int a[3];", 17, "an array cannot be a type of its own"),
    ("int f(void) int g(void)", 13, "';' is expected"),
    *((f"{words} f(void)", 1, "these words make no type") for words in (
        "long long long", "short long", "char int", "char short", "char long", "int int",
        "short short", "char char", "unsigned unsigned", "signed signed")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "column", "words"), MALFORMED, ids=[m[0][:60] for m in MALFORMED])
def test_malformed_declarations(text: str, column: int, words: str) -> None:
    with pytest.raises(ValueError, match=words) as info:
        tn.ffi.library().cdef(text)
    assert f"column {column}:" in str(info.value)


def test_well_formed_declarations() -> None:
    lib = tn.ffi.library()
    lib.cdef("""
        /* comments of both kinds */ extern int abs(int) ; // and odd spacing
        typedef unsigned char byte; typedef struct pair { byte a, b; short *p; } pair_t;
        typedef int (*compare)(const void *, const void *);
        void *bsearch(const void *key, const void *base, size_t n, size_t size, compare fn);
        typedef enum { ONE = 1, TWO, MINUS = -3 } numbers_t;
    """)
    assert lib.abs(-3) == 3 and lib.TWO == 2 and lib.MINUS == -3
    assert lib.pair(a=255).a == 255
    key, base = tn.tensor([4]), tn.tensor([1, 4, 9])
    assert lib.bsearch(key, base, 3, 8, lambda a, b: 0).address == base.data_ptr() + 8
    with pytest.raises(ValueError, match="line 2, column 5: there is no type 'nope'"):
        lib.cdef("typedef int fine_t;\n    nope f(void);")
    lib.cdef("typedef long fine_t;")  # what was read before the fault is gone
    with pytest.raises(AttributeError, match="not declared"):
        lib.nowhere


def test_what_is_not_there() -> None:
    with pytest.raises(OSError, match="no library 'libnowhere.so.1'"):
        tn.ffi.bind("libnowhere.so.1", ERF)
    with pytest.raises(AttributeError, match="no function 'erfq2'"):
        tn.ffi.bind(LIBM, "double erfq2(double)")
    with pytest.raises(ValueError, match="declaration of one function, and this has 2"):
        tn.ffi.bind(LIBM, "double sin(double); double cos(double);")
    with pytest.raises(TypeError, match="a declaration is a str, not int"):
        tn.ffi.bind(LIBM, 3)
    with pytest.raises(TypeError, match=r"bind\(\) has no option 'length'; there are .*lengths"):
        tn.ffi.bind(LIBM, ERF, length=1)


def test_what_is_asked_wrongly(path: str) -> None:
    lib = tn.ffi.library(path).cdef("void keep(double (*fn)(double)); double use(double x);")
    for words, call in (
        ("keep has no callback parameter 'other'", lambda: lib.callback("keep", "other", abs)),
        ("use has no callback parameter 'x'", lambda: lib.callback("use", "x", abs)),
        ("a declaration holds a null character", lambda: lib.cdef("int a(void);\0int b(void);")),
        ("returns is 'value', 'errno', 'status' or 'null', not 'what'",
         lambda: tn.ffi.bind(path, "int failing(int code)", returns="what")),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="takes no arguments: C fills it in"):
        tn.ffi.Pointer(3)
    with pytest.raises(TypeError, match="takes no arguments: C fills it in"):
        tn.ffi.Pointer(address=3)
    find = tn.ffi.bind(path, "int *find(int known)", returns="null")
    with pytest.raises(TypeError, match=r"text\(\) is for pointers to char, not to int"):
        find(1).text()


def test_data_is_not_called(path: str) -> None:
    with pytest.raises(TypeError, match="'variable' .* is data, no function"):
        tn.ffi.bind(path, "int variable(void)")


def mutations(seed: int, n: int) -> list[str]:
    rng = random.Random(seed)
    texts = [DECLARATIONS, AXPY, *(m[0] for m in MALFORMED)]
    words = "* [ ] ( ) { } ; , const int struct n double /* // ... enum = 9999999999 é \\ \n"
    out = []
    for _ in range(n):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 6)):
            i, k = sorted(rng.randrange(len(text) + 1) for _ in range(2))
            text = rng.choice([
                text[:i] + rng.choice(words.split(" ")) + text[i:], text[:i] + text[i + 1 :],
                text[:i] + text[k:], text[:i] + text[i:k] * 2 + text[k:], text[:i],
            ])  # fmt: skip
            text = text[:2000]
        out.append(text)
    return out


def test_random_declarations() -> None:
    read = 0
    for text in [*mutations(1, 4000), "int f(" + "int (*" * 5000, "struct a {" * 5000]:
        scope = tn._C.FfiScope(None)
        try:
            scope.declare(text)
            read += 1
        except ValueError as err:
            assert "declaration '" in str(err)
    assert read > 100


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.skipif(
    "TENON_TEST_SANITIZE" in os.environ, reason="a sanitizer keeps memory that was freed"
)
def test_binding_over_and_over(path: str) -> None:
    def rounds(n: int) -> None:
        for _ in range(n):
            tn.ffi.bind(path, AXPY)
            tn.ffi.unbind(tn.ffi.bind(LIBM, ERF, name="again", derivative="exp(-x*x)"))

    rounds(500)
    gc.collect()
    before = memory.resident()
    rounds(5000)
    gc.collect()
    assert memory.resident() - before < 2 << 20


def test_without_libffi(tmp_path: Path) -> None:
    """A build without libffi is one without tenon_ffi.so: everything else works."""
    script = """
import tenon as tn
assert tn.ones(2).sum() == 2
for use in (lambda: tn.ffi.bind(None, "int abs(int)"), tn.ffi.library):
    try:
        use()
    except ImportError as err:
        assert "libffi" in str(err) and "-Dffi" in str(err), err
    else:
        raise AssertionError
"""
    package = Path(tn.__file__).parent
    plugins = (package / "libtenon.so").resolve().parent / "plugins"
    site = tmp_path / "tenon"
    shutil.copytree(package, site, ignore=shutil.ignore_patterns("plugins", "include", "examples"))
    (site / "plugins").mkdir()
    for file in plugins.glob("*cpu*"):
        if file.is_file():
            shutil.copy(file, site / "plugins")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
