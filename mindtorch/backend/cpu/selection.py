"""Choice among equal elements, as PyTorch's CPU kernels make it.

These kernels select with the algorithms of the C++ standard library (libstdc++'s versions) and with
PyTorch's own quick select, all of which are deterministic. The algorithms run here step by step, on
lists of keys that `<` compares, and return the order in which they leave the indices. They are slow
(about 1 us per step). They are used for slices in which the values do not decide the choice, and
only for up to `MOST` elements at a time; above that, the first of equal elements is taken.
"""
import numpy as np

MOST = 1 << 14
_SMALL = 16  # maximum number of elements that std::sort leaves to insertion sort


class _Line:
    """Keys and, in parallel, their original indices."""

    __slots__ = ("key", "at")

    def __init__(self, keys):
        self.key, self.at = list(keys), list(range(len(keys)))

    def swap(self, i, j):
        k, a = self.key, self.at
        k[i], k[j] = k[j], k[i]
        a[i], a[j] = a[j], a[i]

    # ---- building blocks
    def insert(self, i, first):
        """Moves element i down to its position among the sorted elements from `first` on."""
        k, a = self.key, self.at
        x, n, j = k[i], a[i], i
        if x < k[first]:
            j = first
            k[first + 1:i + 1], a[first + 1:i + 1] = k[first:i], a[first:i]
        else:
            while x < k[j - 1]:
                k[j], a[j] = k[j - 1], a[j - 1]
                j -= 1
        k[j], a[j] = x, n

    def insertion(self, first, last):
        for i in range(first + 1, last):
            self.insert(i, first)

    def partition(self, first, last):
        """Partitions [first, last) by the median of three elements. Returns the start of the second
        part."""
        k = self.key
        a, b, c = first + 1, first + (last - first) // 2, last - 1
        if k[a] < k[b]:
            m = b if k[b] < k[c] else c if k[a] < k[c] else a
        else:
            m = a if k[a] < k[c] else c if k[b] < k[c] else b
        self.swap(first, m)
        i, j, pivot = first + 1, last, k[first]
        while True:
            while k[i] < pivot:
                i += 1
            j -= 1
            while pivot < k[j]:
                j -= 1
            if i >= j:
                return i
            self.swap(i, j)
            i += 1

    # ---- heaps (the largest key on top)
    def sift(self, first, hole, size, x, n):
        k, a, top, child = self.key, self.at, hole, hole
        while child < (size - 1) // 2:
            child = 2 * (child + 1)
            if k[first + child] < k[first + child - 1]:
                child -= 1
            k[first + hole], a[first + hole] = k[first + child], a[first + child]
            hole = child
        if not size & 1 and child == (size - 2) // 2:
            child = 2 * child + 1
            k[first + hole], a[first + hole] = k[first + child], a[first + child]
            hole = child
        while hole > top:
            parent = (hole - 1) // 2
            if not k[first + parent] < x:
                break
            k[first + hole], a[first + hole] = k[first + parent], a[first + parent]
            hole = parent
        k[first + hole], a[first + hole] = x, n

    def pop(self, first, last, to):
        """Moves the top of the heap [first, last) to index `to`, and the element from there into
        the heap."""
        x, n = self.key[to], self.at[to]
        self.key[to], self.at[to] = self.key[first], self.at[first]
        self.sift(first, 0, last - first, x, n)

    def heap_select(self, first, middle, last):
        size = middle - first
        for parent in range((size - 2) // 2, -1, -1) if size > 1 else ():
            self.sift(first, parent, size, self.key[first + parent], self.at[first + parent])
        for i in range(middle, last):
            if self.key[i] < self.key[first]:
                self.pop(first, middle, i)

    # ---- the algorithms
    def partial_sort(self, first, middle, last):
        self.heap_select(first, middle, last)
        while middle - first > 1:
            middle -= 1
            self.pop(first, middle, middle)

    def nth_element(self, first, nth, last):
        depth = 2 * ((last - first).bit_length() - 1) if last > first else 0
        while last - first > 3:
            if not depth:
                self.heap_select(first, nth + 1, last)
                self.swap(first, nth)
                return
            depth -= 1
            cut = self.partition(first, last)
            if cut <= nth:
                first = cut
            else:
                last = cut
        self.insertion(first, last)

    def sort(self, first, last):
        if last - first < 2:
            return
        parts = [(first, last, 2 * ((last - first).bit_length() - 1))]
        while parts:
            i, j, depth = parts.pop()
            while j - i > _SMALL:
                if not depth:
                    self.partial_sort(i, j, j)
                    break
                depth -= 1
                cut = self.partition(i, j)
                parts.append((cut, j, depth))
                j = cut
        self.insertion(first, min(last, first + _SMALL))
        k, a = self.key, self.at
        for i in range(first + _SMALL, last):
            x, n, j = k[i], a[i], i
            while x < k[j - 1]:
                k[j], a[j] = k[j - 1], a[j - 1]
                j -= 1
            k[j], a[j] = x, n


def nth(keys, k):
    """Returns the index of the element that std::nth_element puts at position k."""
    line = _Line(keys)
    line.nth_element(0, k, len(line.key))
    return line.at[k]


def top(keys, k, in_order):
    """Returns the indices of the first k elements as torch.topk finds them."""
    line, n = _Line(keys), len(keys)
    if k * 64 <= n:
        line.partial_sort(0, k, n)
    else:
        line.nth_element(0, k - 1, n)
        if in_order:
            line.sort(0, k - 1)
    return line.at[:k]


def mode(keys):
    """Returns the index of the most frequent element: the last one of the first longest run after
    std::sort.

    NaN, which never compares less, may disturb that order.
    """
    line = _Line(keys)
    line.sort(0, len(keys))
    k, best, most, run = line.key, 0, 0, 0
    for i, x in enumerate(k):
        run += 1
        if i + 1 == len(k) or x != k[i + 1]:
            if run > most:
                best, most = i, run
            run = 0
    return line.at[best]


def quick_select(keys, k):
    """Returns the index of the element that torch.kthvalue's quick select puts at position k."""
    line = _Line(keys)
    v, swap, low, high = line.key, line.swap, 0, len(keys) - 1
    while low < high:
        if high == low + 1:
            if v[high] < v[low]:
                swap(low, high)
            break
        # The median of first, middle and last moves to `low`, the smallest of them right after it.
        swap((low + high) >> 1, low + 1)
        for i, j in ((low + 1, high), (low, high), (low + 1, low)):
            if v[j] < v[i]:
                swap(i, j)
        i, j, pivot = low + 1, high, v[low]
        while True:
            i += 1
            while v[i] < pivot:
                i += 1
            j -= 1
            while pivot < v[j]:
                j -= 1
            if j < i:
                break
            swap(i, j)
        swap(low, j)
        if j <= k:
            low = i
        if j >= k:
            high = j - 1
    return line.at[k]


def ranks(x):
    """Returns the ranks of the elements among the distinct values, NaN last."""
    return np.unique(x, return_inverse=True)[1].reshape(-1)


def resolve_ties(a, at, axis, unsure, choose):
    """Replaces the indices `at` (along an axis of a) of the `unsure` slices by choose(slice).

    Returns `at` unchanged if these slices have more than `MOST` elements in total.
    """
    lines, n = np.flatnonzero(unsure), a.shape[axis]
    if not lines.size or lines.size * n > MOST:
        return at
    x = np.moveaxis(a, axis, -1).reshape(-1, n)
    r = np.moveaxis(at, axis, -1)
    out = np.array(r).reshape(-1, r.shape[-1])
    for i in lines:
        out[i] = choose(x[i])
    return np.ascontiguousarray(np.moveaxis(out.reshape(r.shape), -1, axis))
