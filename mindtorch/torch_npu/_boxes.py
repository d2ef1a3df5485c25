"""Overlap of boxes."""
from mindtorch import torch


def _corners(boxes, trans):
    """Returns (x0, y0, x1, y1) along dimension 0; trans: boxes are (center, size)."""
    a, b, c, d = boxes.unbind(0)
    return (a - c / 2, b - d / 2, a + c / 2, b + d / 2) if trans else (a, b, c, d)


def _parts(one, two, is_cross):
    if is_cross:
        one, two = [x[:, None] for x in one], [x[None, :] for x in two]
    width = (torch.minimum(one[2], two[2]) - torch.maximum(one[0], two[0])).clamp(min=0)
    height = (torch.minimum(one[3], two[3]) - torch.maximum(one[1], two[1])).clamp(min=0)
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (one, two)]
    hull = (torch.maximum(one[2], two[2]) - torch.minimum(one[0], two[0]), torch.maximum(one[3], two[3]) - torch.minimum(one[1], two[1]))
    return one, two, width * height, areas, hull


def npu_iou(bboxes, gtboxes, mode=0):
    """Returns (M, N) overlaps of bboxes (N, 4) and gtboxes (M, 4), as corners: intersection over
    union (mode 0) or over the gtbox's area (mode 1)."""
    if mode not in (0, 1):
        raise ValueError(f"npu_iou: mode must be 0 (iou) or 1 (iof), not {mode}")
    _, _, inter, areas, _ = _parts(gtboxes.unbind(-1), bboxes.unbind(-1), True)
    return inter / (areas[0] if mode else areas[0] + areas[1] - inter)


npu_ptiou = npu_iou


def npu_giou(self, gtboxes, trans=False, is_cross=False, mode=0):
    """Computes the generalized IoU of boxes (4, N) and gtboxes (4, M); is_cross: of all pairs,
    shape (M, N), else elementwise, shape (1, N)."""
    return _rows(_giou, self, gtboxes, trans, is_cross, mode)


def _giou(one, two, inter, union, hull):
    whole = hull[0] * hull[1]
    return inter / union - (whole - union) / whole


def npu_diou(self, gtboxes, trans=False, is_cross=False, mode=0):
    """Computes the IoU minus (center distance / diagonal of the enclosing box) squared; arguments
    as in npu_giou."""
    return _rows(_diou, self, gtboxes, trans, is_cross, mode)


def _diou(one, two, inter, union, hull):
    far = hull[0].square() + hull[1].square()
    near = ((one[0] + one[2] - two[0] - two[2]) / 2).square() + ((one[1] + one[3] - two[1] - two[3]) / 2).square()
    return inter / union - near / far


def npu_ciou(self, gtboxes, trans=False, is_cross=True, mode=0, atan_sub_flag=False):
    """Computes npu_diou minus a penalty for different aspect ratios; atan_sub_flag: also returns
    the difference of the arctangents of the ratios."""
    found = []

    def ciou(one, two, inter, union, hull):
        angle = torch.atan((two[2] - two[0]) / (two[3] - two[1])) - torch.atan((one[2] - one[0]) / (one[3] - one[1]))
        found.append(angle)
        v = 4 / torch.pi ** 2 * angle.square()
        with torch.no_grad():
            alpha = v / (1 - inter / union + v)
        return _diou(one, two, inter, union, hull) - alpha * v
    r = _rows(ciou, self, gtboxes, trans, is_cross, mode)
    return (r, found[0].reshape(r.shape)) if atan_sub_flag else r


def _rows(formula, boxes, gtboxes, trans, is_cross, mode):
    one, two = _corners(boxes, trans), _corners(gtboxes, trans)
    if is_cross:
        one, two = two, one
    one, two, inter, areas, hull = _parts(one, two, is_cross)
    union = areas[0] if mode else areas[0] + areas[1] - inter
    r = formula(one, two, inter, union, hull)
    return r if is_cross else r.unsqueeze(0)
