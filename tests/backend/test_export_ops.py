"""Every ONNX lowering (run by onnxruntime), and the same ops as a compiled MindSpore Cell, against
mindtorch's eager result.

Each line is an expression over the tensors below. Each group of lines is traced as one function, so
it compiles once.
"""
import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as torch
import mindtorch.torch.nn.functional as F
from mindtorch.backend.export.lowering import LOWERINGS, to_model
from mindtorch.core.compile.tracing import trace
from mindtorch.torch._graph import graph_cell, recordable

RS = np.random.RandomState(0)
INPUTS = {
    "x": RS.randn(2, 3, 4), "y": RS.randn(2, 3, 4), "v": RS.randn(4), "m": RS.randn(3, 4), "n": RS.randn(4, 5), "p": RS.rand(2, 3, 4) * 0.8 + 0.1,
    "im": RS.randn(2, 4, 6, 5), "sig": RS.randn(2, 4, 9), "vol": RS.randn(1, 2, 4, 5, 3), "one": RS.rand(3), "s": RS.randn(),
}
INPUTS = {k: np.asarray(a, np.float32) for k, a in INPUTS.items()}
INPUTS |= {"i": RS.randint(-5, 6, (2, 3, 4)), "j": RS.randint(1, 4, (2, 3, 4)), "k": np.array([2, 0, 1, 1]), "b": RS.rand(2, 3, 4) > 0.5,
           "c": RS.rand(2, 3, 4) > 0.5}
G = {"w2": (6, 4, 3, 3), "w2g": (6, 2, 3, 2), "w1": (5, 4, 3), "w3": (3, 2, 2, 2, 2), "wt2": (4, 3, 3, 3), "wt2g": (4, 2, 2, 3), "wt1": (4, 3, 4),
     "bias6": (6,), "bias3": (3,), "bias5": (5,), "lw": (5, 4), "lb": (5,), "e": (7, 4), "ch": (4,), "ch2": (4,)}
G = {k: np.random.RandomState(i).randn(*s).astype(np.float32) * 0.5 for i, (k, s) in enumerate(G.items())}
G["rv"] = np.random.RandomState(9).rand(4).astype(np.float32) + 0.5

GROUPS = {
    "unary": """exp(x) log(p) sqrt(p) rsqrt(p) sin(x) cos(x) tan(x) asin(p) acos(p) atan(x) sinh(x) cosh(x) tanh(x) asinh(x) atanh(p)
      acosh(p+1) erf(x) sigmoid(x) abs(x) abs(i) neg(x) neg(i) floor(x) ceil(x) sign(x) round(x) trunc(x) frac(x) relu(x) F.relu(i)
      reciprocal(x) square(x) expm1(x) log1p(p) log2(p) log10(p) exp2(x) arcsin(p) arccos(p) arctan(x) special.expit(x) special.erf(x)
      special.exp2(x) F.sigmoid(x) F.tanh(x) absolute(x) negative(x) fix(x) exp(i) sqrt(j) logical_not(b) logical_not(x) bitwise_not(b)
      bitwise_not(i) isnan(x) isinf(x) isfinite(x) nan_to_num(x) floor(i) positive(x) real(x) round(x,decimals=2) -x +x abs(-x) ~b ~i""",
    "binary": """add(x,y) x+y x+1 1+x add(x,y,alpha=2) x+i i+j i+1.5 b+i sub(x,y) x-y 1-x x-2 i-j rsub(x,y) rsub(x,3,alpha=2) subtract(x,y) mul(x,y)
      x*y x*2 2*x i*j b*x b+c b*c multiply(x,v) x/y x/3 1/x i/j true_divide(x,y) divide(x,y) div(x,y,rounding_mode='floor')
      div(x,y,rounding_mode='trunc') div(i,j,rounding_mode='floor') x//y i//j i//3 floor_divide(x,2) remainder(x,y) x%2 i%3 i%-3 remainder(i,j) fmod(x,y) atan2(x,y) atan2(x,-y.abs())
      pow(p,y) p**2 x**3 p**0.5 p**-1 p**1.7 2**x i**2 pow(2,x) float_power(p,2) maximum(x,y) minimum(x,y) fmax(x,y) fmin(x,y) max(x,y) min(x,y)
      maximum(i,j) x==y i==j b==c x!=0 x<y x<=0 x>y x>=i i<2 ne(x,y) lt(x,0) le(x,y) gt(x,y) ge(x,y) eq(i,j) not_equal(x,y) less(x,y)
      less_equal(x,y) greater(x,y) greater_equal(x,y) logical_and(b,c) logical_or(b,x) logical_xor(b,c) b&c b|c b^c
      bitwise_and(b,c) bitwise_or(b,c) bitwise_xor(b,c) where(b,x,y) where(b,x,0.0) where(x>0,i,1) x.masked_fill(b,-1) masked_fill(x,b,float('inf'))
      clamp(x,-0.5,0.5) clamp(x,min=0) clip(x,max=v) clamp_min(x,0.1) clamp_max(x,0.1) clamp(i,-1,2) lerp(x,y,0.3) lerp(x,y,p) addcmul(x,y,y,value=2)
      addcdiv(x,y,p,value=2) x+s s*i x*v+m x.add(y).mul_(2).sub_(1).div_(3) x.float() x.double()*2 i.float() x.half() x.int() b.long() x.to(torch.int64) x.type_as(i)
      i.bool() prelu(im,ch) x.clone().fill_(3) x.clone().zero_() x.clone().copy_(v)""",
    "shapes": """x.reshape(6,4) x.reshape(-1) x.view(2,12) x.view_as(y) x.reshape_as(y) flatten(x,1) x.ravel() unflatten(x,2,(2,2)) squeeze(x.unsqueeze(1),1)
      x[:,None].squeeze() unsqueeze(x,-1) x.permute(2,0,1) permute(x,(1,0,2)) transpose(x,0,2) x.swapaxes(0,1) swapdims(x,0,1) m.t() t(v) m.T x.mT movedim(x,0,2)
      moveaxis(x,(0,1),(2,0)) v.expand(3,4) m.expand_as(x) broadcast_to(v,(2,3,4)) b[:1].expand(2,3,4) v.repeat(2,2) x.repeat(1,2,1) tile(m,(2,1)) v[None].repeat(3,1)
      repeat_interleave(x,2,1) repeat_interleave(m,2) cat([x,y],1) cat((x,i)) concat([x,x,y],-1) concatenate([m,m]) cat([empty(0),v]) stack([x,y],1) stack((m,m)) hstack((m,m)) vstack((m,m)) hstack((v,v)) vstack((v,v)) dstack([x,y])
      column_stack((v,v)) cartesian_prod(v,v)
      split(x,1,1) split(x,[1,2],dim=1) x.split(3,-1) chunk(x,2,2) chunk(x,2,1) x.tensor_split(2,1) unbind(x,1) split_with_sizes(x,[1,3],2) narrow(x,2,1,2) select(x,1,-1) x.select(2,0)
      flip(x,[0,2]) flip(x,(-1,)) roll(x,1,2) roll(x,(1,-1),(0,1)) roll(m,3) x.contiguous() x.clone() x.detach()+1 x.data*2 zeros_like(x)+x ones_like(x)*y full_like(x,2)+x
      x.new_zeros(3)+one x.new_ones(2,3,1)*x x.new_full((4,),3.0)+x full((2,3,4),2.5)*x zeros(4)+x ones(4)+x tril(x) triu(m,1) diagonal(m) diagonal(m,1) F.one_hot(k,5) x.cpu() x+torch.arange(4)""",
    "indexing": """x[0] x[1,2] x[-1,-1] x[:,1:] x[...,::2] x[:,None,:,1] x[...,-1] x[1:,...,:2] x[None] x[:,[0,2]] m[k[:2]] m[:,k] x[:,:,k] x[0,k%3] m[k%3,k] m[-1-k%3] x[0][1][2] m[[-1,0]]
      x[:,-2:] x[:,1:1] x[0,...,[1,3]] index_select(m,1,k) index_select(x,2,k) F.embedding(k,e) embedding(e,k) gather(x,2,j) gather(i,1,j-1) take_along_dim(x,j,2) setitems(x,v)
      setmask(x,b) views(x,v) e[k] m[:,1][k%3]""",
    "reductions": """x.sum() sum(x,1) sum(x,(0,2),keepdim=True) sum(i) sum(b) x.mean() mean(x,-1) mean(x,[1,2],True) x.sum(1,dtype=torch.float64) prod(x) prod(x,1) amax(x,1) amin(x,(0,1)) amax(x) max(x) min(i)
      max(x,1) min(x,-1,keepdim=True) x.max(2)[0] argmax(x,1) argmin(x) argmax(x,-1,keepdim=True) any(b) any(b,1) all(b,2,keepdim=True) all(x) var(x) var(x,1) std(x,2,unbiased=False) std(x,1,correction=0,keepdim=True)
      norm(x) norm(x,1,1) x.norm(dim=-1,keepdim=True) norm(x,p=float('inf')) linalg.vector_norm(x,2,1) linalg.norm(m,None,1) logsumexp(x,1) logsumexp(x,(0,2),keepdim=True) cumsum(x,1) cumsum(i,-1) topk(x,2) topk(x,2,1,largest=False) x.topk(3,0+2)[1]""",
    "activations": """F.softmax(x,-1) softmax(x,1) x.softmax(0) log_softmax(x,2) F.log_softmax(x,1) F.softmin(x,2) special.softmax(x,1) special.log_softmax(x,1) F.gelu(x) F.gelu(x,approximate='tanh') F.silu(x) F.softplus(x) F.softplus(x,2.0,0.5)
      F.logsigmoid(x) F.mish(x) F.hardtanh(x) F.relu6(x*5) F.hardsigmoid(x*3) F.hardswish(x*3) F.leaky_relu(x,0.2) F.elu(x,0.7) F.celu(x,0.7) celu(x) F.selu(x) selu(x) F.prelu(im,ch) F.prelu(x,one[:1]) F.threshold(x,0.1,5) threshold(x,0.1,5)
      F.glu(x) F.glu(im,1) F.softsign(x) F.tanhshrink(x) F.hardshrink(x,0.4) hardshrink(x) F.softshrink(x,0.3) F.dropout(x,0.5,False) dropout(x,0.5,False) F.dropout2d(im,0.5,False) F.dropout1d(x,0.5,False) F.dropout3d(vol,0.5,False)
      F.alpha_dropout(x,0.5,False) F.feature_alpha_dropout(im,0.5,False) F.relu(x.clone(),inplace=True)""",
    "products": """F.linear(x,lw,lb) F.linear(x,lw) F.linear(v,lw,lb) matmul(x,n) x@n m@n m@v v@n v@v matmul(x,y.mT) x@m.T bmm(x,y.transpose(1,2)) mm(m,n) mv(m,v) dot(v,v) vdot(v,v) addmm(lb,m,n) addmm(m@n,m,n,beta=2,alpha=0.5) baddbmm(x@x.mT,x,x.mT)
      outer(v,one) ger(v,one) linalg.matmul(m,n) einsum('bij,jk->bik',x,n) einsum('bij,bkj->bik',x,y) einsum('ij->ji',m) einsum('bij,bij->',x,y) einsum('i,j',v,one) einsum('bij,jk,kl->bl',x,n,n.T) x[:,None]@n""",
    "layers": """F.batch_norm(im,ch2,rv,ch,ch2) F.batch_norm(sig,ch2,rv) F.batch_norm(m,ch2,rv,ch,None) F.batch_norm(im,None,None,ch,ch2,True) batch_norm(im,ch,ch2,ch2,rv,False,0.1,1e-5,False) F.batch_norm(vol.repeat(1,2,1,1,1),ch2,rv,ch,ch2)
      F.layer_norm(x,(4,),ch,ch2) F.layer_norm(x,[3,4]) layer_norm(x,(4,)) rms_norm(x,(4,),ch) F.rms_norm(x,(3,4)) F.group_norm(im,2,ch,ch2) group_norm(sig,4) F.instance_norm(im,weight=ch,bias=ch2)
      F.instance_norm(im,ch2,rv,use_input_stats=False) F.normalize(x) F.normalize(x,dim=2) F.cosine_similarity(x,y,2) cosine_similarity(x,y) F.local_response_norm(im,3)
      conv2d(im,w2,bias6) F.conv2d(im,w2,bias6,2,1) conv2d(im,w2,None,(1,2),(0,1),(2,1)) conv2d(im,w2g,bias6,groups=2) conv2d(im,w2,padding='same') conv2d(im[0],w2) F.conv1d(sig,w1,bias5,2,1) conv1d(sig,w1,padding='same',dilation=2)
      conv1d(sig[0],w1) conv1d(sig,w1,padding='valid') F.conv3d(vol,w3,bias3,padding=1) conv3d(vol,w3) conv_transpose2d(im,wt2,bias3) F.conv_transpose2d(im,wt2,bias3,2,1,1) conv_transpose2d(im,wt2g,None,(2,1),(1,0),0,2) conv_transpose2d(im,wt2,stride=2,dilation=2)
      conv_transpose1d(sig,wt1,bias3,2,1) F.conv_transpose1d(sig,wt1) conv_transpose3d(vol,w3.transpose(0,1),stride=2)""",
    "pools": """F.max_pool2d(im,2) F.max_pool2d(im,3,2,1) F.max_pool2d(im,(2,3),ceil_mode=True) F.max_pool1d(sig,3,2,1) max_pool1d(sig,2) max_pool2d(im,2) F.max_pool2d(im[0],2) F.avg_pool2d(im,2) F.avg_pool2d(im,3,2,1) F.avg_pool2d(im,3,2,1,count_include_pad=False)
      F.avg_pool2d(im,2,ceil_mode=True) F.avg_pool2d(im,(2,3),divisor_override=2) F.avg_pool1d(sig,3) avg_pool1d(sig,2,1,1) F.avg_pool1d(sig,4,3,1,True) F.adaptive_avg_pool2d(im,1) F.adaptive_avg_pool2d(im,(4,3)) F.adaptive_avg_pool2d(im,(3,None)) F.adaptive_avg_pool1d(sig,2)
      adaptive_avg_pool1d(sig,4) F.adaptive_avg_pool3d(vol,(2,1,3)) F.adaptive_max_pool2d(im,(4,2)) F.adaptive_max_pool1d(sig,5) F.adaptive_max_pool3d(vol,2) F.adaptive_max_pool2d(im,1)
      F.max_pool3d(vol,2,1,1) max_pool3d(vol,2) F.avg_pool3d(vol,2)""",
    "resizing": """F.pad(x,(1,2)) F.pad(x,(1,0,2,1),value=3) F.pad(im,(1,1,2,0),mode='reflect') F.pad(sig,(2,1),mode='replicate') F.pad(im,(1,1,1,1),mode='circular') F.pad(x,(-1,1)) F.pad(i,(1,1),value=2) F.interpolate(im,scale_factor=2) F.interpolate(im,size=(9,4))
      F.interpolate(im,size=(9,4),mode='nearest-exact') F.interpolate(im,scale_factor=2,mode='bilinear') F.interpolate(im,size=(9,4),mode='bilinear',align_corners=True) F.interpolate(im,scale_factor=(1.5,0.6),mode='bilinear',align_corners=False)
      F.interpolate(sig,scale_factor=1.7,mode='linear') F.interpolate(vol,size=(3,7,4),mode='trilinear') F.interpolate(im,size=(9,4),mode='bicubic') F.interpolate(im,scale_factor=2.0,mode='bicubic',align_corners=True) F.interpolate(im,size=(3,2),mode='area')
      F.upsample(im,scale_factor=2) F.pixel_shuffle(im,2) pixel_shuffle(im,2) F.pixel_unshuffle(im[...,:4],2) pixel_unshuffle(im[...,:4],2) F.channel_shuffle(im,2) channel_shuffle(im,2) F.unfold(im,(3,2)) F.unfold(im,2,1,1,2)""",
    "attention": """F.scaled_dot_product_attention(x,y,y) F.scaled_dot_product_attention(x,y,y,is_causal=True) F.scaled_dot_product_attention(x,y,x,m[:,:3]) F.scaled_dot_product_attention(x,y,x,x[:,:,:3]>-9,scale=0.3) gqa(im,e) attend(x,y,m,b)
      F.mse_loss(x,y) F.mse_loss(x,y,reduction='sum') F.l1_loss(x,y,reduction='none') F.cross_entropy(e[:4],k) F.cross_entropy(e[:4],k,reduction='sum') F.cross_entropy(e[:4],k,reduction='none') F.cross_entropy(e[:4],k,ignore_index=1) F.cross_entropy(m,m.softmax(1))""",
    "recurrent": """net('LSTM')(x) net('LSTM',num_layers=2,bidirectional=True,batch_first=True)(x[:,:2]) net('LSTM',bias=False)(x,(x[:1,:,:3],x[1:,:,:3])) net('GRU')(x) net('GRU',bidirectional=True)(x) net('RNN')(x) net('RNN',nonlinearity='relu')(x)
      net('LSTMCell')(m) net('GRUCell')(m) net('RNNCell')(m) net('RNNCell',nonlinearity='relu')(m,m[:,:3]) net('LSTMCell')(v) net('LSTM')(m)""",
}


def setitems(x, v):
    y = x * 1
    y[:, 0] = v
    y[0, 1:, 2] = 5
    y[..., [0, 3]] += 1
    return y


def setmask(x, b):
    y = x * 1
    y[b] = 2
    return y


def views(x, v):
    y = x * 1
    w = y.view(6, 4)
    w[2].mul_(3)
    y[:, 1].add_(v)
    return y, w


def gqa(im, e):
    return F.scaled_dot_product_attention(im, im[:, :2], im[:, 2:], enable_gqa=True)


def attend(x, y, m, b):
    torch.manual_seed(0)
    a = torch.nn.MultiheadAttention(4, 2).eval()
    w = torch.nn.MultiheadAttention(4, 2, kdim=4, vdim=4, batch_first=True, bias=False).eval()
    mask = torch.triu(torch.ones(2, 2, dtype=torch.bool), 1)
    return a(x, y, y), a(x, x, x, attn_mask=mask, need_weights=False)[0], w(x, y, y, key_padding_mask=torch.tensor([[False, True, False]] * 2)), a(
        m, m, m, average_attn_weights=False)


def net(kind, **kw):
    torch.manual_seed(0)
    return getattr(torch.nn, kind)(4, 3, **kw).eval()


def expressions(text):
    return text.split()


HERE = dict(setitems=setitems, setmask=setmask, views=views, gqa=gqa, attend=attend, net=net)
CODE = {name: compile(expr, expr, "eval") for text in GROUPS.values() for expr in expressions(text) for name in [expr]}


class Names(dict):
    def __missing__(self, key):
        return getattr(torch, key)


def evaluate(expr, tensors):
    import builtins
    scope = Names(tensors, **{k: torch.from_numpy(a) for k, a in G.items()}, **HERE, F=F, torch=torch, float=builtins.float,
                  __builtins__={})
    return eval(CODE[expr], scope)


def flat(x):
    return [t for v in x for t in flat(v)] if isinstance(x, (tuple, list)) else [x]


def traced(exprs):
    names = list(INPUTS)

    def fn(*xs):
        return [evaluate(e, dict(zip(names, xs))) for e in exprs]
    xs = [torch.from_numpy(a.copy()) for a in INPUTS.values()]
    with torch.no_grad():
        graph, out = trace(fn, xs, leaf=recordable, input_names=names)
    graph.prune()
    return graph, [(e, t.numpy()) for e, r in zip(exprs, out) for t in flat(r)]


def agree(got, want, tol):
    for a, (expr, b) in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (expr, a.dtype, b.dtype, a.shape, b.shape)
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol, err_msg=expr)


SLOW = {"recurrent", "layers", "pools", "resizing", "attention", "indexing"}


@pytest.mark.parametrize("group", [pytest.param(g, marks=pytest.mark.slow) if g in SLOW else g for g in GROUPS])
def test_group(group):
    exprs = expressions(GROUPS[group])
    graph, want = traced(exprs)
    cell = graph_cell(graph)
    arrays = list(INPUTS.values())
    got = ms.jit(cell.construct)(*(ms.Tensor(a) for a in arrays))
    agree([t.asnumpy() for t in got], want, 1e-3)
    onnxruntime = pytest.importorskip("onnxruntime")
    model = to_model(graph, 17)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    got = session.run(None, {i.name: INPUTS[i.name] for i in session.get_inputs()})
    agree(got, want, 1e-4)


# Dropout is recorded only in training mode, where export raises.
NOT_HERE = {n for n in LOWERINGS if "dropout" in n}


@pytest.mark.slow
def test_every_lowering_is_exercised():
    """Checks that some expression exercises every lowering.

    Primitives count as exercised by the ops that are composed of them.
    """
    from mindtorch.core.dispatch.op_registry import OPS
    seen = {n.op for text in GROUPS.values() for n in traced(expressions(text))[0].nodes}
    reached = {id(LOWERINGS[o]) for o in seen if o in LOWERINGS}
    # an alias is recorded under the op's first name
    kernels = {OPS[o].fn for o in seen if o in OPS}
    missing = [o for o, f in LOWERINGS.items() if o in OPS and o not in NOT_HERE and id(f) not in reached and OPS[o].fn not in kernels]
    assert not missing, missing


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_random_programs(data):
    """Checks that random chains of ops compute the same in both targets."""
    steps = data.draw(st.lists(st.sampled_from([
        "x.tanh()", "x*y", "x.transpose(1,2).contiguous().view(2,3,4)", "x.softmax(-1)", "x-x.mean(1,keepdim=True)", "x.clamp(-1,1)",
        "torch.cat([x[:,1:],x[:,:1]],1)", "torch.where(y>0,x,-x)", "x@x.mT@x", "F.layer_norm(x,(4,))", "x.flip(1)", "x.abs().add(1).log()",
        "x.roll(1,0)", "F.pad(x,(1,0))[...,:4]", "x.masked_fill(y<0,0.5)", "torch.stack([x,y]).sum(0)", "x.cumsum(1)"]), min_size=2, max_size=7))

    def fn(x, y):
        for s in steps:
            x = eval(s, {"x": x, "y": y, "torch": torch, "F": F})
        return x
    xs = [torch.from_numpy(INPUTS["x"].copy()), torch.from_numpy(INPUTS["y"].copy())]
    graph, out = trace(fn, xs, leaf=recordable)
    cell = graph_cell(graph.prune())
    np.testing.assert_allclose(cell(ms.Tensor(INPUTS["x"]), ms.Tensor(INPUTS["y"])).asnumpy(), out.numpy(), rtol=1e-3, atol=1e-4)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_model(graph, 17).SerializeToString(), providers=["CPUExecutionProvider"])
    feed = dict(zip([i.name for i in session.get_inputs()], (INPUTS["x"], INPUTS["y"])))
    np.testing.assert_allclose(session.run(None, feed)[0], out.numpy(), rtol=1e-4, atol=1e-5)
