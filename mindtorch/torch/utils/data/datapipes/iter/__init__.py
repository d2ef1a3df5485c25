"""Iterable pipes."""
from mindtorch.torch.utils.data.datapipes.iter.callable import CollatorIterDataPipe as Collator, MapperIterDataPipe as Mapper
from mindtorch.torch.utils.data.datapipes.iter.combinatorics import SamplerIterDataPipe as Sampler, ShufflerIterDataPipe as Shuffler
from mindtorch.torch.utils.data.datapipes.iter.combining import (ConcaterIterDataPipe as Concater, DemultiplexerIterDataPipe as Demultiplexer,
                                                                 ForkerIterDataPipe as Forker, MultiplexerIterDataPipe as Multiplexer,
                                                                 ZipperIterDataPipe as Zipper)
from mindtorch.torch.utils.data.datapipes.iter.filelister import FileListerIterDataPipe as FileLister
from mindtorch.torch.utils.data.datapipes.iter.fileopener import FileOpenerIterDataPipe as FileOpener
from mindtorch.torch.utils.data.datapipes.iter.grouping import (BatcherIterDataPipe as Batcher, GrouperIterDataPipe as Grouper,
                                                                UnBatcherIterDataPipe as UnBatcher)
from mindtorch.torch.utils.data.datapipes.iter.routeddecoder import RoutedDecoderIterDataPipe as RoutedDecoder
from mindtorch.torch.utils.data.datapipes.iter.selecting import FilterIterDataPipe as Filter
from mindtorch.torch.utils.data.datapipes.iter.sharding import ShardingFilterIterDataPipe as ShardingFilter
from mindtorch.torch.utils.data.datapipes.iter.streamreader import StreamReaderIterDataPipe as StreamReader
from mindtorch.torch.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe as IterableWrapper

__all__ = ["Batcher", "Collator", "Concater", "Demultiplexer", "FileLister", "FileOpener", "Filter", "Forker", "Grouper", "IterableWrapper", "Mapper",
           "Multiplexer", "RoutedDecoder", "Sampler", "ShardingFilter", "Shuffler", "StreamReader", "UnBatcher", "Zipper"]
