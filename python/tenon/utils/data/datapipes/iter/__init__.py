"""Pipes that are iterated over."""

from tenon.utils.data.datapipes.iter.combining import (
    ConcaterIterDataPipe as Concater,
)
from tenon.utils.data.datapipes.iter.combining import (
    Demultiplexer,
    Forker,
)
from tenon.utils.data.datapipes.iter.combining import (
    MultiplexerIterDataPipe as Multiplexer,
)
from tenon.utils.data.datapipes.iter.combining import (
    ZipperIterDataPipe as Zipper,
)
from tenon.utils.data.datapipes.iter.files import FileListerIterDataPipe as FileLister
from tenon.utils.data.datapipes.iter.files import FileOpenerIterDataPipe as FileOpener
from tenon.utils.data.datapipes.iter.files import StreamReaderIterDataPipe as StreamReader
from tenon.utils.data.datapipes.iter.grouping import BatcherIterDataPipe as Batcher
from tenon.utils.data.datapipes.iter.grouping import GrouperIterDataPipe as Grouper
from tenon.utils.data.datapipes.iter.grouping import UnBatcherIterDataPipe as UnBatcher
from tenon.utils.data.datapipes.iter.plain import (
    CollatorIterDataPipe as Collator,
)
from tenon.utils.data.datapipes.iter.plain import (
    FilterIterDataPipe as Filter,
)
from tenon.utils.data.datapipes.iter.plain import (
    IterableWrapperIterDataPipe as IterableWrapper,
)
from tenon.utils.data.datapipes.iter.plain import (
    MapperIterDataPipe as Mapper,
)
from tenon.utils.data.datapipes.iter.plain import (
    SamplerIterDataPipe as Sampler,
)
from tenon.utils.data.datapipes.iter.plain import (
    ShufflerIterDataPipe as Shuffler,
)
from tenon.utils.data.datapipes.iter.sharding import ShardingFilterIterDataPipe as ShardingFilter

__all__ = [
    "Batcher",
    "Collator",
    "Concater",
    "Demultiplexer",
    "FileLister",
    "FileOpener",
    "Filter",
    "Forker",
    "Grouper",
    "IterableWrapper",
    "Mapper",
    "Multiplexer",
    "Sampler",
    "ShardingFilter",
    "Shuffler",
    "StreamReader",
    "UnBatcher",
    "Zipper",
]
