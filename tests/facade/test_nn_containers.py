"""Sequential, ModuleList, ModuleDict, ParameterList and ParameterDict compared with PyTorch's,
expression by expression."""
import collections
import re

import pytest
from _both_sides import same as _same

pytestmark = pytest.mark.smoke


def neutral(s):
    """Removes what inherently differs from a text: addresses, and the package of the classes."""
    return re.sub(r"0x[0-9a-f]+", "0x", s).replace("mindtorch.torch.", "torch.")


def text(x):
    return neutral(repr(x))


def same(program):
    """Asserts that `program(torch)` returns the same values, errors and warnings on both sides."""
    def run(T):
        try:
            return program(T)
        except Exception as e:
            return "raised", type(e).__name__, neutral(str(e))
    _same(run)


def _containers(T):
    nn = T.nn
    s = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Tanh())
    return {"s": s, "l": nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1), nn.ReLU()]),
            "d": nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()}), "nn": nn, "T": T,
            "pl": nn.ParameterList([nn.Parameter(T.ones(2, 3)), T.zeros(2), 3, "a"]),
            "pd": nn.ParameterDict({"b": nn.Parameter(T.ones(2)), "a": T.zeros(3), "n": 4}),
            "od": nn.Sequential(collections.OrderedDict(a=nn.ReLU(), b=nn.Tanh()))}


EXPRESSIONS = """
s[5] | s[-4] | s['a'] | s[1.5] | s[0:2] | s[::2] | s + nn.Sequential(nn.Tanh()) | s + [nn.Tanh()] | s * 2 | 2 * s
s * 0 | s * 1.5 | s.append(nn.ELU()) | s.insert(0, nn.ELU()) | s.insert(9, nn.ELU()) | s.insert(-1, nn.ELU())
s.insert(0, 3) | s.extend([nn.ELU()]) | s.extend(3) | s.extend([3]) | s.pop(0) | s.pop(slice(0, 2)) | s.__delitem__(0)
s.__delitem__(slice(1, 3)) | s.__delitem__(9) | s.__setitem__(1, nn.ELU()) | s.__setitem__(9, nn.ELU())
s.__setitem__(0, 3) | len(s) | bool(nn.Sequential()) | [*s] | s[1:](T.ones(1)) | nn.Sequential([nn.ReLU()])
nn.Sequential(nn.ReLU(), None) | nn.Sequential(3) | nn.Sequential()(5) | od | od[0:1] | od + od | od.pop(0)
od.append(nn.ELU()) | od.__delitem__(0) | s.__iadd__(nn.Sequential(nn.ELU())) | s.__imul__(2) | l | l[1:] | l[7]
l[-1] | l['0'] | l.append(3) | l.append(None) | l + [nn.ELU()] | l.insert(1, nn.ELU()) | l.pop(1) | l.pop(slice(0, 1))
l.extend(nn.ReLU()) | l.extend([3]) | l.extend(l) if 0 else 1 | l(1) | nn.ModuleList(3) | nn.ModuleList()
l.__setitem__(0, nn.ELU()) | l.__setitem__(12, nn.ELU()) | l.__delitem__(0) | l.__delitem__(slice(0, 2))
nn.ReLU() in l | [*reversed(l)] | [*l.state_dict()]
nn.ModuleList([nn.Sequential(nn.Linear(1, 1), nn.ReLU()) for _ in range(3)])
nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh(), nn.ReLU()]) | d | d['c'] | d.update({'c': nn.ELU()})
d.update([('e', nn.ELU())]) | d.update([('e',)]) | d.update([3]) | d.update(3) | d.pop('a') | d.pop('zz')
[*d.keys()] | [*d.items()] | [*d.values()] | 'a' in d | len(d) | d.__setitem__('x.y', nn.ReLU())
d.__setitem__('keys', nn.ReLU()) | d.__setitem__(3, nn.ReLU()) | d.__delitem__('zz') | d.clear() | nn.ModuleDict(d)
d(1) | nn.ModuleDict({'type': nn.ReLU()}) | pl | pl[1:3] | pl[9] | pl[-1] | pl['0'] | pl.append(T.ones(1))
pl.extend([1]) | pl.extend(3) | pl.extend(nn.ReLU()) | pl(1) | [type(x).__name__ for x in pl] | [*pl.state_dict()]
pl.__setitem__(0, T.zeros(1)) | pl.__setitem__(22, T.zeros(1)) | nn.ParameterList(3)
nn.ParameterList(nn.Parameter(T.ones(2))) | nn.ParameterList() | nn.ParameterList([nn.ReLU(), None]) | pl + [1]
[*map(type, pl)][2:] | pd | pd['b'] | pd['zz'] | [*pd] | [*pd.items()] | [*pd.keys()] | pd.get('q', 5) | pd.pop('b')
pd.pop('zz') | pd.popitem() | pd.setdefault('k') | pd.fromkeys(['a', 'b'], 3) | pd.copy() | pd | {'z': 1} | {'z': 1}
pd.__ior__(nn.ParameterDict({'z': 1})) | pd.update(3) | pd.update([3]) | pd.update([('e', 1, 2)]) | [*reversed(pd)]
pd.clear() | pd.__setitem__(3, 1) | pd.__delitem__('zz') | pd(1) | nn.ParameterDict(3)
nn.ParameterDict({'type': T.ones(1)}) | nn.ParameterDict([('b', 1), ('a', 2)]) | 'a' in pd | len(pd)
nn.Container(a=nn.ReLU())
"""


@pytest.mark.parametrize("expression",
                         [e.strip() for line in EXPRESSIONS.strip().split("\n") for e in line.split(" | ")])
def test_container(expression):
    def program(T):
        names = _containers(T)
        result = eval(expression, dict(names))
        changed = {k: text(names[k]) for k in ("s", "l", "d", "pl", "pd", "od")}
        return text(result).replace("Function", ""), changed
    same(program)
