"""The tensor type from Python: construction, attributes, numbers, identity, exchange, errors."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import weakref

import pytest
import tenon

np = pytest.importorskip("numpy")


# ---- Construction --------------------------------------------------------------------------------


def test_tensor_infers_dtypes():
    assert tenon.tensor([1, 2]).dtype is tenon.int64
    assert tenon.tensor([1, 2.0]).dtype is tenon.float32
    assert tenon.tensor([True, False]).dtype is tenon.bool
    assert tenon.tensor([True, 2]).dtype is tenon.int64
    assert tenon.tensor([1j]).dtype is tenon.complex64
    # Its width counts, though it is a Python float too.
    assert tenon.tensor(np.float64(2)).dtype is tenon.float64
    assert tenon.tensor([np.float32(2)]).dtype is tenon.float32
    assert tenon.tensor(np.int32(2)).dtype is tenon.int32
    assert tenon.tensor([]).dtype is tenon.float32
    assert tenon.tensor([[], []]).shape == (2, 0)
    assert tenon.tensor(np.zeros(3)).dtype is tenon.float64


def test_tensor_from_nested_data():
    assert tenon.tensor([[1, 2], (3, 4)]).tolist() == [[1, 2], [3, 4]]
    assert tenon.tensor([np.array([1, 2]), [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert tenon.tensor([tenon.tensor(1.5), 2]).tolist() == [1.5, 2.0]
    assert tenon.tensor(range(4)).tolist() == [0, 1, 2, 3]
    assert tenon.tensor(7).shape == ()
    for dtype in ("float16", "bfloat16", "float64", "int8", "uint8", "bool", "complex128"):
        kind = getattr(tenon, dtype)
        t = tenon.tensor([[0, 1, 2]], dtype=kind)
        assert t.dtype is kind
        assert t.to(tenon.complex128).real.tolist() in ([[0, 1, 2]], [[0, 1, 1]])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([[1, 2], [3]], ValueError),
        ([1, [2]], (ValueError, TypeError)),
        ([[1], 2], (ValueError, TypeError)),
        ("text", TypeError),
        ([None], RuntimeError),
        pytest.param(object(), RuntimeError, id="object"),
        ([2**70], ValueError),
        ({1: 2}, RuntimeError),
        (np.array(["a"]), TypeError),
        pytest.param(np.array([object()]), TypeError, id="objects"),
    ],
    ids=str,
)
def test_tensor_refuses(data, error):
    with pytest.raises(error):
        tenon.tensor(data)


def test_recursive_list_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(ValueError):
        tenon.tensor(loop)


def test_integer_overflow_is_refused():
    with pytest.raises(RuntimeError):
        tenon.tensor([300], dtype=tenon.uint8)
    with pytest.raises(TypeError):
        tenon.tensor([1j], dtype=tenon.float32)


def test_copies_and_aliases():
    a = np.arange(3.0)
    assert tenon.tensor(a).data_ptr() != a.ctypes.data
    assert tenon.as_tensor(a).data_ptr() == a.ctypes.data
    assert tenon.from_numpy(a).data_ptr() == a.ctypes.data
    assert tenon.asarray(a, copy=True).data_ptr() != a.ctypes.data
    with pytest.raises(ValueError):
        tenon.asarray([1, 2], copy=False)
    t = tenon.ones(2)
    assert tenon.as_tensor(t) is t
    with pytest.warns(UserWarning):
        assert tenon.tensor(t) is not t


def test_class_call():
    assert tenon.Tensor(2, 3).shape == (2, 3)
    assert tenon.Tensor([1, 2]).tolist() == [1.0, 2.0]
    assert tenon.Tensor().shape == (0,)
    assert tenon.Tensor(tenon.Size([4])).shape == (4,)
    with pytest.raises(TypeError):
        tenon.Tensor(1, color="red")
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        tenon.Tensor(-1)


# ---- Attributes ----------------------------------------------------------------------------------


def test_attributes():
    t = tenon.zeros(2, 3, dtype=tenon.int32)
    assert t.shape == (2, 3) and isinstance(t.shape, tenon.Size)
    assert (t.ndim, t.dim(), t.numel(), t.itemsize, t.nbytes) == (2, 2, 6, 4, 24)
    assert t.device == tenon.device("cpu") and t.layout is tenon.strided
    assert t.stride() == (3, 1) and t.stride(0) == 3 and t.size(-1) == 3
    assert t.is_leaf and not t.requires_grad and t.grad is None and t.grad_fn is None
    assert not t.is_cuda and t.is_cpu
    assert t.T.shape == (3, 2) and t.mT.shape == (3, 2)
    with pytest.raises(AttributeError):
        t.shape = (3, 2)
    with pytest.raises(AttributeError):
        t.nothing
    with pytest.raises(IndexError):
        t.size(2)


def test_size_type():
    s = tenon.Size([2, 3])
    assert s == (2, 3) and s.numel() == 6
    assert isinstance(s[:1], tenon.Size) and isinstance(s + (1,), tenon.Size)
    assert isinstance(s * 2, tenon.Size) and hash(s) == hash((2, 3))
    assert pickle.loads(pickle.dumps(s)) == s
    with pytest.raises(TypeError):
        tenon.Size(["a"])
    with pytest.raises(IndexError):
        s[2]


def test_dtype_and_device_objects():
    assert pickle.loads(pickle.dumps(tenon.float32)) is tenon.float32
    assert copy.deepcopy(tenon.int8) is tenon.int8
    assert tenon.float is tenon.float32 and tenon.long is tenon.int64
    assert tenon.float64.itemsize == 8 and tenon.bfloat16.is_floating_point
    assert tenon.zeros(1, dtype=float).dtype is tenon.float64
    d = tenon.device("cuda", 1)
    assert (d.type, d.index, str(d)) == ("cuda", 1, "cuda:1")
    assert d == tenon.device("cuda:1") != tenon.device("cpu")
    assert pickle.loads(pickle.dumps(d)) == d
    for bad in ("", ":", "cuda:", "cuda:-1", "cpu:x", "cuda:01", "a" * 99, "cpu\0"):
        with pytest.raises((RuntimeError, ImportError, ValueError)):
            tenon.device(bad)
    with pytest.raises(TypeError):
        tenon.dtype()


def test_finfo_and_iinfo():
    for name in ("float16", "float32", "float64"):
        ours, theirs = tenon.finfo(getattr(tenon, name)), np.finfo(name)
        assert ours.eps == theirs.eps and ours.max == theirs.max and ours.tiny == theirs.tiny
    for name in ("uint8", "int8", "int16", "int32", "int64"):
        ours, theirs = tenon.iinfo(getattr(tenon, name)), np.iinfo(name)
        assert (ours.min, ours.max, ours.bits) == (theirs.min, theirs.max, theirs.bits)
    with pytest.raises(TypeError):
        tenon.finfo(tenon.int64)
    with pytest.raises(TypeError):
        tenon.iinfo(tenon.float32)


# ---- Numbers -------------------------------------------------------------------------------------

BINARY = ["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">="]


@pytest.mark.parametrize("op", BINARY)
def test_operators_match_numpy(op):
    a = np.array([1.5, -2.0, 3.25, 4.0], dtype=np.float32)
    b = np.array([2.0, 3.0, -1.0, 0.5], dtype=np.float32)
    if op == "**":
        a = np.abs(a)
    x, y = tenon.tensor(a), tenon.tensor(b)
    space = {"a": a, "b": b, "x": x, "y": y}
    for ours, theirs in (("x {} y", "a {} b"), ("x {} 2", "a {} 2"), ("2.5 {} y", "2.5 {} b")):
        with np.errstate(all="ignore"):
            want = eval(theirs.format(op), space)
        np.testing.assert_allclose(eval(ours.format(op), space).numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("op", ["&", "|", "^", "<<", ">>", "+", "-", "*", "//", "%"])
def test_integer_operators_match_numpy(op):
    a, b = np.array([5, 12, 7]), np.array([3, 2, 1])
    space = {"a": a, "b": b, "x": tenon.tensor(a), "y": tenon.tensor(b), "z": tenon.tensor(a)}
    exec(f"z {op}= y", space)
    for ours, theirs in (("x {} y", "a {} b"), ("x {} 2", "a {} 2"), ("20 {} y", "20 {} b")):
        want = eval(theirs.format(op), space).tolist()
        assert eval(ours.format(op), space).tolist() == want
    assert space["z"].tolist() == eval(f"a {op} b", space).tolist()


def test_unary_and_matmul():
    x = tenon.tensor([[1.0, -2.0], [3.0, 4.0]])
    assert (-x).tolist() == [[-1.0, 2.0], [-3.0, -4.0]]
    assert abs(x).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert +x is x
    assert (~tenon.tensor([True, False])).tolist() == [False, True]
    assert (x @ x).tolist() == (x.numpy() @ x.numpy()).tolist()


def test_inplace_returns_the_same_object():
    x = tenon.ones(3)
    y = x
    x += 1
    x *= 2.0
    assert x is y and x.tolist() == [4.0, 4.0, 4.0]
    assert x.add_(1) is x and x.copy_(tenon.zeros(3)) is x


def test_conversions():
    assert int(tenon.tensor(3.7)) == 3 and float(tenon.tensor([2])) == 2.0
    assert complex(tenon.tensor(2.0)) == 2 + 0j
    assert str(complex(tenon.tensor(complex(1.5, -0.0)))) == "(1.5-0j)"  # signs of zeros stay
    assert [10, 20, 30][tenon.tensor(1)] == 20
    assert bool(tenon.tensor([0.0])) is False and bool(tenon.tensor(float("nan"))) is True
    assert tenon.tensor(5).item() == 5 and isinstance(tenon.tensor(True).item(), bool)
    for bad in (tenon.zeros(2), tenon.zeros(0)):
        with pytest.raises(RuntimeError):
            bool(bad)
        with pytest.raises(RuntimeError):
            bad.item()
        for number in (int, float):
            with pytest.raises(ValueError, match="only one element"):
                number(bad)
    with pytest.raises(TypeError):
        [1, 2][tenon.tensor(1.0)]
    with pytest.raises(TypeError):
        len(tenon.tensor(1))
    with pytest.raises(TypeError):
        iter(tenon.tensor(1))


def test_iteration_and_membership():
    x = tenon.arange(6.0).view(3, 2)
    assert len(x) == 3 and [r.tolist() for r in x] == x.tolist()
    assert 3 in x and 9 not in x
    a, b, c = x
    assert c.tolist() == [4.0, 5.0]
    with pytest.raises(RuntimeError):
        assert "a" in x


def test_unrelated_operands():
    x = tenon.ones(2)
    assert (x == None) is False and (x != "a") is True  # noqa: E711
    for other in ("a", None, object(), [1, 2]):
        with pytest.raises(TypeError):
            x + other
        with pytest.raises(TypeError):
            assert x < other
    with pytest.raises(OverflowError):
        x + 2**64


# ---- Calls of operators --------------------------------------------------------------------------


def test_ways_to_pass_arguments():
    x = tenon.arange(6.0)
    assert x.view(2, 3).shape == x.view((2, 3)).shape == x.view([2, -1]).shape == (2, 3)
    assert x.view(size=(3, 2)).shape == (3, 2)
    assert tenon.zeros(2, 3).shape == tenon.zeros((2, 3)).shape == tenon.zeros(size=[2, 3]).shape
    assert tenon.zeros(tenon.tensor(2), np.int64(3)).shape == (2, 3)
    assert x.view(2, 3).permute(1, 0).shape == x.view(2, 3).permute((1, 0)).shape == (3, 2)
    assert tenon.add(x, other=1, alpha=2)[0] == 2
    assert tenon.sum(input=x, dim=0) == x.sum(axis=0) == 15
    assert x.view(2, 3).sum(dim=(0, 1), keepdims=True).shape == (1, 1)
    assert x.sum(**{"d" + "im": 0}) == 15
    assert tenon.ones(2, requires_grad=True, layout=tenon.strided).requires_grad
    out = tenon.empty(6)
    assert tenon.exp(x, out=out) is out


BAD_CALLS = [
    (lambda x: tenon.softmax(x, "a"), "argument 'dim' (position 2) must be int, not str"),
    (lambda x: x.softmax("a"), "softmax(): argument 'dim' (position 1) must be int, not str"),
    (lambda x: x.softmax(dim="a"), "softmax(): argument 'dim' must be int, not str"),
    (lambda x: tenon.exp(), 'exp() missing 1 required positional arguments: "input"'),
    (lambda x: tenon.exp(x, x), "exp() takes 1 positional argument but 2 were given"),
    (lambda x: tenon.exp(x, bad=1), "exp() got an unexpected keyword argument 'bad'"),
    (lambda x: tenon.exp(x, input=x), "exp() got multiple values for argument 'input'"),
    (lambda x: tenon.exp([1]), "argument 'input' (position 1) must be Tensor, not list"),
    (lambda x: tenon.cat([x, 1]), "tuple of Tensors, but found element of type int at pos 1"),
    (lambda x: x.max("a"), "received an invalid combination of arguments - got (str)"),
]


@pytest.mark.parametrize(("call", "text"), BAD_CALLS)
def test_argument_errors(call, text):
    with pytest.raises(TypeError) as caught:
        call(tenon.ones(2, 2))
    assert text in str(caught.value)


def test_core_errors_carry_facts():
    with pytest.raises(RuntimeError) as caught:
        tenon.ones(2, 3) + tenon.ones(4)
    assert caught.value.op == "add"
    assert caught.value.detail == "input: float32[2, 3], other: float32[4]"
    assert caught.value.__notes__ == [f"in add({caught.value.detail})"]
    with pytest.raises(IndexError):
        tenon.ones(2).sum(dim=3)
    with pytest.raises(RuntimeError):
        tenon.zeros(-1)


# ---- Identity ------------------------------------------------------------------------------------


def test_identity_survives_in_the_core():
    x = tenon.ones(2, requires_grad=True)
    x.note = ["kept"]
    y = x * 2
    number = id(x)
    del x
    gc.collect()
    leaf = y.grad_fn.next_functions[0][0].variable
    assert id(leaf) == number and leaf.note == ["kept"]
    del y
    gc.collect()
    assert leaf.note == ["kept"]


def test_grad_is_one_object():
    x = tenon.ones(2, requires_grad=True)
    x.sum().backward()
    x.grad.tag = 1
    gc.collect()
    assert x.grad is x.grad and x.grad.tag == 1
    g = x.grad
    x.grad = None
    assert x.grad is None and g.tag == 1
    with pytest.raises((RuntimeError, ValueError)):
        x.grad = tenon.ones(3)
    with pytest.raises(TypeError):
        x.grad = 1
    del x.grad


def test_subclasses():
    class Mine(tenon.Tensor):
        def twice(self):
            return self * 2

    m = tenon.ones(2).as_subclass(Mine)
    assert isinstance(m, Mine) and m.twice().tolist() == [2.0, 2.0]
    n = Mine([1, 2])
    assert type(n) is Mine and n.tolist() == [1.0, 2.0]
    p = tenon.Tensor._make_subclass(Mine, tenon.ones(3), True)
    assert p.requires_grad and p.is_leaf and type(p) is Mine
    y = p * 2
    del p
    gc.collect()
    product = y.grad_fn.next_functions[0][0]  # y is an alias of it that has the class
    assert type(product.next_functions[0][0].variable) is Mine

    class Slots(tenon.Tensor):
        __slots__ = ("a",)

    s = Slots(2)
    s.a = 3
    assert s.a == 3 and s.shape == (2,)


def test_weak_references_and_cycles():
    x = tenon.ones(2)
    ref = weakref.ref(x)
    assert ref() is x
    del x
    assert ref() is None

    class Mine(tenon.Tensor):
        pass

    for make in (lambda: tenon.ones(2), lambda: Mine(2)):
        t = make()
        t.me = t
        ref = weakref.ref(t)
        del t
        gc.collect()
        assert ref() is None


def test_dormant_objects_are_released():
    class Token:
        pass

    x = tenon.ones(2, requires_grad=True)
    x.token = Token()
    ref = weakref.ref(x.token)
    y = x * 2
    del x
    gc.collect()
    assert ref() is not None
    del y
    gc.collect()
    assert ref() is None


def test_no_leak_in_operators():
    x, y = tenon.ones(4), tenon.ones(4)

    def work() -> None:
        for _ in range(300):
            x + y
            x.add(1.0, alpha=2)
            tenon.cat([x, y])
            try:
                tenon.exp("a")
            except TypeError:
                pass
            try:
                x + tenon.ones(3)
            except RuntimeError:
                pass

    work()
    gc.collect()
    before = sys.getrefcount(x), sys.getrefcount(None), len(gc.get_objects())
    work()
    gc.collect()
    after = sys.getrefcount(x), sys.getrefcount(None), len(gc.get_objects())
    assert before[0] == after[0] and abs(after[1] - before[1]) < 50
    assert after[2] - before[2] < 50


def test_threads():
    failures = []

    def work() -> None:
        try:
            for i in range(200):
                x = tenon.full((8,), float(i), requires_grad=True)
                (x * x).sum().backward()
                assert x.grad.tolist() == [2.0 * i] * 8
        except BaseException as err:
            failures.append(err)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ---- Exchange ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float64", "float32", "complex128", "int16", "bool"])
def test_numpy_scalars_keep_their_dtype(kind):
    value = np.dtype(kind).type(1)
    for t in (tenon.tensor(value), tenon.as_tensor(value), tenon.tensor([value, value])):
        assert t.dtype == getattr(tenon, kind)


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
     "complex64", "complex128"],
)  # fmt: skip
def test_numpy_both_ways(dtype):
    a = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    for array in (a, a.T, a[::2], a[:, ::-1], a[1:1], np.array(a[0, 0])):
        t = tenon.from_numpy(array)
        assert t.dtype is getattr(tenon, dtype) and t.shape == array.shape
        assert np.array_equal(t.contiguous().numpy(), array)
        back = t.numpy()
        assert np.array_equal(back, array) and back.dtype == array.dtype
        if array.size:
            assert np.shares_memory(back, array)


def test_memory_outlives_its_owner():
    a = tenon.ones(1000).numpy()
    gc.collect()
    assert a.sum() == 1000
    t = tenon.from_numpy(np.ones(1000))
    gc.collect()
    assert t.sum() == 1000
    x = tenon.ones(1000)
    view = memoryview(x)
    x.data = tenon.zeros(5)
    assert view[0] == 1.0 and len(view) == 1000


def test_read_only_memory():
    a = np.ones(3)
    a.flags.writeable = False
    t = tenon.from_numpy(a)
    with pytest.raises((RuntimeError, ValueError)):
        t.add_(1)
    with pytest.raises((RuntimeError, ValueError)):
        t[0] = 5
    assert a.tolist() == [1.0, 1.0, 1.0]
    assert tenon.frombuffer(b"\1\0\2\0", dtype=tenon.int16).tolist() == [1, 2]


def test_buffers():
    x = tenon.arange(6, dtype=tenon.int32).view(2, 3)
    view = memoryview(x)
    assert view.shape == (2, 3) and view.format == "i" and view.tolist() == x.tolist()
    assert bytes(x) == x.numpy().tobytes()
    view[0, 0] = 42
    assert x[0, 0] == 42
    buffer = bytearray(8)
    t = tenon.frombuffer(buffer, dtype=tenon.float32)
    t.fill_(1.0)
    assert buffer == np.ones(2, dtype=np.float32).tobytes()
    assert tenon.frombuffer(buffer, dtype=tenon.uint8, count=2, offset=6).shape == (2,)
    for count, offset in ((5, 0), (1, 9), (-1, 3), (0, 0), (1, -1)):
        with pytest.raises(ValueError):
            tenon.frombuffer(buffer, dtype=tenon.float32, count=count, offset=offset)
    with pytest.raises(BufferError):
        memoryview(tenon.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError):
        tenon.ones(2, requires_grad=True).numpy()
    with pytest.raises(TypeError):
        tenon.ones(2, dtype=tenon.bfloat16).numpy()


def test_dlpack():
    x = tenon.arange(6.0).view(2, 3)
    assert np.shares_memory(np.from_dlpack(x), x.numpy())
    assert tenon.from_dlpack(x).data_ptr() == x.data_ptr()
    a = np.arange(4.0)
    assert tenon.from_dlpack(a).data_ptr() == a.ctypes.data
    capsule = x.__dlpack__()
    y = tenon.from_dlpack(capsule)
    with pytest.raises(TypeError):
        tenon.from_dlpack(capsule)
    y[0, 0] = 9
    assert x[0, 0] == 9 and x.__dlpack_device__() == (1, 0)
    del capsule
    x.__dlpack__(max_version=(1, 0))
    for bad in (1, "a", None):
        with pytest.raises(TypeError):
            tenon.from_dlpack(bad)
    with pytest.raises(BufferError):
        tenon.ones(1, requires_grad=True).__dlpack__()


def test_dlpack_with_torch():
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0)
    y = tenon.from_dlpack(x)
    y[0] = 5
    assert x[0] == 5 and torch.from_dlpack(y).data_ptr() == x.data_ptr()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol):
    def again(t):
        return pickle.loads(pickle.dumps(t, protocol))

    x = tenon.arange(6.0).view(2, 3)
    for t in (x, x.t(), x[:, 1], tenon.tensor(1), tenon.zeros(0, 3), x.to(tenon.bfloat16),
              x.to(tenon.complex64), x > 2):  # fmt: skip
        r = again(t)
        assert r.dtype is t.dtype and r.shape == t.shape and r.tolist() == t.tolist()
    assert again(x.t()).stride() == (1, 3)
    assert again(x.clone().requires_grad_()).requires_grad
    x.note = "text"
    assert again(x).note == "text"


def test_copy():
    x = tenon.ones(2, requires_grad=True)
    x.sum().backward()
    x.note = [1]
    y = copy.deepcopy(x)
    assert y is not x and y.requires_grad and y.note == [1] and y.note is not x.note
    assert y.grad.tolist() == [1.0, 1.0] and y.grad is not x.grad
    a, b = copy.deepcopy([x, x])
    assert a is b
    with pytest.raises(RuntimeError):
        copy.deepcopy(x * 2)
    assert copy.copy(tenon.ones(2)).tolist() == [1.0, 1.0]


def test_to():
    x = tenon.ones(2)
    assert x.to(tenon.float32) is x and x.to("cpu") is x and x.float() is x.to() is x
    assert x.to(tenon.float32, copy=True) is not x
    assert x.to(tenon.int64).dtype is x.long().dtype is tenon.int64
    assert x.to("cpu", tenon.float64).dtype is tenon.float64
    assert x.to(device="cpu", dtype=tenon.half).dtype is tenon.float16
    assert x.to(tenon.ones(1, dtype=tenon.int8)).dtype is tenon.int8
    assert x.type() == "tenon.FloatTensor" and x.type(tenon.int32).dtype is tenon.int32
    for bad in (("no such device",), (1.5,), (tenon.float32, 1, 2, 3)):
        with pytest.raises((TypeError, RuntimeError, ImportError)):
            x.to(*bad)
    with pytest.raises(TypeError):
        x.to(tenon.float32, color=1)


# ---- Modes and functions -------------------------------------------------------------------------


def test_gradient_modes():
    x = tenon.ones(2, requires_grad=True)
    with tenon.no_grad():
        assert not (x * 2).requires_grad
        with tenon.enable_grad():
            assert (x * 2).requires_grad
    assert tenon.is_grad_enabled()

    @tenon.no_grad()
    def quiet():
        return x * 2

    @tenon.no_grad
    def quiet_too():
        return (x * 2).requires_grad, tenon.is_grad_enabled()

    @tenon.no_grad()
    def steps():
        yield tenon.is_grad_enabled()
        yield tenon.is_grad_enabled()

    assert not quiet().requires_grad and quiet_too() == (False, False)
    assert [(s, tenon.is_grad_enabled()) for s in steps()] == [(False, True)] * 2
    with tenon.set_grad_enabled(False):
        assert not tenon.is_grad_enabled()
    assert tenon.is_grad_enabled()
    tenon.set_grad_enabled(False)
    assert not tenon.is_grad_enabled()
    tenon.set_grad_enabled(True)
    with tenon.inference_mode():
        y = x * 2
        assert tenon.is_inference_mode_enabled() and not y.requires_grad
    assert y.is_inference() and tenon.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), tenon.no_grad():
        1 / 0
    assert tenon.is_grad_enabled()


def test_autograd_function():
    from tenon._tape.function import Function, once_differentiable

    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x)
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            assert ctx.needs_input_grad == (True, False) and x.requires_grad
            return g * ctx.factor, None

    x = tenon.ones(3, requires_grad=True)
    y = Scale.apply(x, 2.5)
    assert y.tolist() == [2.5] * 3 and y.grad_fn.name() == "ScaleBackward"
    y.sum().backward()
    assert x.grad.tolist() == [2.5] * 3
    with pytest.raises(RuntimeError):
        y.sum().backward()
    assert not Scale.apply(tenon.ones(3), 2).requires_grad

    class Exp(Function):
        @staticmethod
        def forward(x):
            return x.exp(), 7

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output[0])

        @staticmethod
        def backward(ctx, g, _):
            return g * ctx.saved_tensors[0]

    x = tenon.zeros(2, requires_grad=True)
    y, seven = Exp.apply(x)
    assert seven == 7
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]

    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise KeyError("from backward")

    with pytest.raises(KeyError):
        Bad.apply(x).sum().backward()

    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2

    Once.apply(x).sum().backward()


def test_function_is_released():
    from tenon._tape.function import Function

    class Keep(Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x, y)
            ctx.token = Token()
            refs.append(weakref.ref(ctx.token))
            return y

        @staticmethod
        def backward(ctx, g):
            return g * 2

    class Token:
        pass

    refs: list = []
    x = tenon.ones(2, requires_grad=True)
    y = Keep.apply(x)
    assert refs[0]() is not None
    del y
    gc.collect()
    assert refs[0]() is None


def test_hooks():
    x = tenon.ones(2, requires_grad=True)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
    y = x * 3
    y.retain_grad()
    y.sum().backward()
    assert seen == [[3.0, 3.0]] and x.grad.tolist() == [6.0, 6.0] and y.grad.tolist() == [1.0, 1.0]
    handle.remove()
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    x.register_hook(lambda g: "nonsense")
    with pytest.raises(TypeError):
        (x * 3).sum().backward()
    with pytest.raises(RuntimeError):
        tenon.ones(1).register_hook(print)


def test_random_state():
    tenon.manual_seed(3)
    state = tenon.get_rng_state()
    a = tenon.rand(5).tolist()
    tenon.set_rng_state(state)
    assert tenon.rand(5).tolist() == a and tenon.initial_seed() == 3
    g = tenon.Generator().manual_seed(3)
    assert tenon.rand(5, generator=g).tolist() == a
    for bad in ("a", 1.5, None, 2**70):
        with pytest.raises((TypeError, ValueError)):
            g.manual_seed(bad)
    with pytest.raises((TypeError, RuntimeError, ValueError)):
        tenon.set_rng_state(tenon.zeros(3, dtype=tenon.uint8))
    assert isinstance(tenon.seed(), int)


def test_default_dtype():
    try:
        tenon.set_default_dtype(tenon.float64)
        assert tenon.tensor([1.0]).dtype is tenon.zeros(1).dtype is tenon.float64
        assert tenon.tensor([1j]).dtype is tenon.complex128
        with pytest.raises((TypeError, RuntimeError)):
            tenon.set_default_dtype(tenon.int64)
    finally:
        tenon.set_default_dtype(tenon.float32)


def test_package():
    with pytest.raises(AttributeError):
        tenon.no_such_name
    assert tenon.is_tensor(tenon.ones(1)) and not tenon.is_tensor(1)
    assert tenon.result_type(tenon.ones(1, dtype=tenon.int8), 1.5) is tenon.float32
    assert tenon.result_type(tenon.ones(1, dtype=tenon.int8), 300) is tenon.int8
    assert tenon.can_cast(tenon.int64, tenon.float32)
    assert not tenon.can_cast(tenon.float32, tenon.int64)
    assert tenon.einsum("ij,jk", tenon.ones(2, 3), tenon.ones(3, 4)).shape == (2, 4)
    assert isinstance(tenon.explain("add"), str)
