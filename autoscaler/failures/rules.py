"""Rules of the classifier: a pattern in the text of a failure, its category, the line for users.

The categories follow Jeon et al. (USENIX ATC'19), Table 7, observed in two months of failures of a
shared cluster, with full disks, networks and programs ended from outside added. Specific rules
precede general ones. A rule prefers what software gives in a fixed form: the type of an
exception, an errno, an HTTP status, a signal, a code of a CUDA library. `_errno` to `_type` write
these forms.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from enum import Enum
from typing import Final

from autoscaler.domain.report import FailureCategory as Category


class Beside(Enum):
    """Whether a rule searches the printed lines too where there is a traceback.

    DECISIVE: yes, and before the traceback, which shows only what the script noticed of it.
    FALLBACK: yes, if no rule fits the traceback. NEVER: no, the script may have survived it.
    """

    DECISIVE = "decisive"
    FALLBACK = "fallback"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A pattern in the text of a failure, with its category and the line for the user.

    `words` may use the pattern's named groups, `{error}` for the exception or the line that
    matched, and `{place}` for " (file:line, in function)".
    """

    pattern: re.Pattern[str]
    category: Category
    words: str
    beside: Beside = Beside.NEVER


def _rule(
    category: Category, pattern: str, words: str, beside: Beside = Beside.NEVER
) -> FailureRule:
    return FailureRule(re.compile(pattern, re.MULTILINE), category, words, beside)


def _errno(*numbers: int) -> str:
    """Return a pattern of these errnos, as Python, C libraries and Rust print them."""
    either = "|".join(str(number) for number in numbers)
    return rf"(?:\[Err(?:no|or) |\b[Ee]rrno[ :=]+|\(os error )(?:{either})\b"


def _http(statuses: str) -> str:
    """Return a pattern of these HTTP statuses, a pattern too, as clients print them."""
    return (
        rf"(?:HTTP(?: [Ee]rror| status| response)?(?: code)?|[Ss]tatus(?:[ _]code)?|Response"
        rf"|[Rr]eturned error)[ :=\[(]+(?:{statuses})\b"
        rf"|\b(?:{statuses}) (?:Client|Server) Error|\((?:{statuses})\) when calling"
        rf"|^\w*H(?:TTP|ttp)\w*: \D*(?:{statuses})\b"
    )


def _signals(*numbers: int) -> str:
    """Return a pattern of the end of a process by one of these signals, as launchers print it."""
    either = "|".join(str(number) for number in numbers)
    names = "|".join(signal.Signals(number).name for number in numbers)
    of_shell = "|".join(str(128 + number) for number in numbers)
    return (
        rf"\b(?:exit|return) ?(?:code|status)[ :=]*(?:-(?:{either})|{of_shell})\b"
        rf"|(?:\b[Ss]ignal|[Ss]ignals\.)[ :=]*\(?(?:(?:{either})\b|(?:{names})\b)"
        rf"|\b(?:{names})\)? .*(?:received|at time)"
    )


def _type(words: str) -> str:
    """Return a pattern of exceptions whose type has one of these words, as a pattern, in it."""
    return rf"^_?\w*(?:{words})\w*(?::|$)"


_CRASH_SIGNALS: Final = (4, 6, 7, 8, 11)
# Words of a library's complaint about shapes and types of tensors.
_TENSOR_WORDS: Final = (
    r"(?i:\b(?:shape|size|dim|dimension|dtype)s?\b|\b\d+ elements?\b|scalar type|batch_size"
    r"|tensor\b)"
)
_CONFLICT_WORDS: Final = (
    r"(?i:expect|must|match|should|but got|but found|only support|incompatible|invalid|not equal"
    r"|does not|don't|doesn't|cannot|can't|could not|same|differ)"
)
# Words by which a library tells the programmer how to call it.
_DEMAND_WORDS: Final = (
    r"(?i:\byou (?:must|should|need to)\b|\bplease (?:specify|set|pass|use)\b|\bis only valid\b"
    r"|\bin-?place operation\b|\bmust be (?:one of|a|an|set|specified|provided|passed)\b)"
)

LOST_WORDS: Final = "lost contact with another worker: "
RAISED_WORDS: Final = "the script raised {error}{place}"
_BROKEN_WORDS: Final = "a device is broken: {error}"
# Xid codes after which NVIDIA's documentation names the hardware or the link as the cause.
_HARDWARE_XID: Final = r"48|6[1-4]|74|79|9[245]|119|120|14\d|150"

CODE_ERRORS: Final = re.compile(
    r"^(?:\w*KeyError|IndexError|NotImplementedError|ZeroDivisionError)\b"
)
"""Errors of the program's own code that no rule fits."""

REPORT_ERRORS: Final = re.compile(
    r"^(?:ChildFailedError|RayActorError|ActorDiedError|WorkerCrashedError|ProcessExitedException)\b"
)
"""Errors by which a launcher says that some process failed, not why."""

RULES: Final = (
    _rule(Category.DEVICE_MEMORY, r"^DeviceMemoryError: (?P<said>.+)", "{said}"),
    _rule(
        Category.BROKEN_DEVICE,
        rf"\bXid \([^)]*\): (?:{_HARDWARE_XID})\b|previous Xid (?:{_HARDWARE_XID})\b"
        r"|fallen off the bus|(?i:GPU[ _]?(?:is[ _]?)?lost)|lost from the bus|RmInitAdapter failed"
        r"|Unable to determine the device handle",
        _BROKEN_WORDS,
        Beside.DECISIVE,
    ),
    _rule(
        Category.BROKEN_DEVICE,
        r"uncorrectable (?:ECC|NVLink|error)|ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE"
        r"|cudaErrorECCUncorrectable|CUDA_ERROR_CONTAINED|a hardware error"
        r"|(?i:nvlink\b.{0,30}\b(?:error|fatal|fail))",
        _BROKEN_WORDS,
        Beside.FALLBACK,
    ),
    _rule(
        Category.DEVICE_MEMORY,
        r"(?:CUDA|HIP|XPU|MPS)(?: error| runtime error|_ERROR)?(?: \(\d+\))?[: _]*"
        r"(?:backend )?(?i:out[ _]of[ _]memory)|[Cc]uda failure '?out of memory"
        r"|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|^OutOfMemoryError|resource allocation failed"
        r"|RESOURCE_EXHAUSTED|[Rr]an out of memory in memory space|OOM when allocating"
        r"|cudaErrorMemoryAllocation|hipErrorOutOfMemory|Dst tensor is not initialized",
        "a device ran out of memory{place}: lower device_max under batch",
        Beside.FALLBACK,
    ),
    _rule(
        Category.HOST_MEMORY,
        r"(?i:DataLoader worker .*signal: ?Bus error)|insufficient shared memory"
        r"|unable to (?:open|write to) (?:shared memory|file </torch)",
        "a DataLoader worker ran out of shared memory{place}: lower num_workers",
        Beside.DECISIVE,
    ),
    _rule(
        Category.HOST_MEMORY,
        r"(?i:DataLoader worker .*signal: ?Killed)",
        "a DataLoader worker was killed, probably out of memory{place}: lower num_workers",
    ),
    _rule(
        Category.HOST_MEMORY,
        r"oom-kill|oom_kill|OOM[- ]?[Kk]ill|Out of memory: Kill|out-of-memory handler"
        r"|low on resource: memory|MemoryPressure|(?:return|exit) ?code[ :=]*-9\b"
        r"|: Out Of Memory\b|(?i:exceeded .*memory limit|memory usage limit)"
        r"|\b\d+ Killed +\S|^Killed$",
        "the instance ran out of memory: {error}",
        Beside.DECISIVE,
    ),
    _rule(
        Category.HOST_MEMORY,
        r"^_?\w*MemoryError|std::bad_alloc|Cannot allocate memory|DefaultCPUAllocator"
        r"|CPUAllocator\.cpp|Unable to allocate .* for an array|(?i:allocate (?:cpu|host) memory)"
        rf"|{_errno(12)}|{_signals(9)}",
        "the instance ran out of memory{place}: {error}",
        Beside.FALLBACK,
    ),
    _rule(
        Category.DISK_FULL,
        r"No space left on device"
        r"|(?i:not enough (?:free )?(?:disk )?space|insufficient disk space|disk quota exceeded"
        rf"|\bdisk is full)|StorageFull|{_errno(28, 122)}",
        "the disk is full{place}: {error}",
        Beside.FALLBACK,
    ),
    _rule(
        Category.SEMANTIC,
        r"^CheckpointError: .*(?:Recomputed|different number of tensors)",
        RAISED_WORDS,
    ),
    _rule(
        Category.CHECKPOINT,
        r"PytorchStreamReader|PytorchStreamWriter|inline_container|CheckpointError"
        r"|^RuntimeError: write\(\): fd \d+ failed|^SafetensorError|Error while (?:de)?serializing"
        r"|^UnpicklingError|pickle data was truncated|invalid load key"
        r"|^EOFError: Ran out of input|unexpected EOF, expected \d+ more bytes"
        r"|file in archive is not in a subdirectory"
        r"|\bwrite error: wrote \d+ blocks|(?i:checkpoint|ckpt)\S*; \w+"
        r"|(?i:(?:unable|failed|could not|can't|cannot) (?:to )?(?:load|read|save|write|restore)\b"
        r".*\b(?:checkpoint|ckpt))",
        "a checkpoint can't be read or written{place}: {error}",
    ),
    _rule(
        Category.CUDA_VERSION,
        r"no kernel image is available|driver version is insufficient|driver .*is too old"
        r"|Error 80[34]|forward compatibility was attempted|display driver / cuda driver"
        r"|unsupported toolchain|not compatible with the current PyTorch"
        r"|Driver/library version mismatch|COMPAT_NOT_SUPPORTED|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
        r"|[Nn]o_?[Bb]inary_?[Ff]or_?G|NO_BINARY_FOR_GPU|invalid device function"
        r"|InvalidDeviceFunction|NoKernelImage|InsufficientDriver|PTX JIT compilation failed"
        r"|mismatches the version that was used to compile|unsatisfied condition: cuda"
        r"|(?i:(?:cudnn|cuda) version (?:incompatib|mismatch))",
        "the CUDA version of the environment does not match the device or its driver: {error}",
    ),
    _rule(
        Category.CUDA_START,
        r"No (?:CUDA|HIP|XPU) (?:GPUs|devices) are|NVIDIA-SMI has failed"
        r"|could not select device driver|(?i:cuda (?:error: )?unknown error)"
        r"|(?i:cuda is (?:not |un)available)"
        r"|\binitialization error\b|CUDA_ERROR_NOT_INITIALIZED"
        r"|no CUDA-capable device"
        r"|CUDA driver initialization failed|not compiled with CUDA|system not yet initialized"
        r"|busy or unavailable|Found no NVIDIA driver|THCGeneral.*unknown error"
        r"|initialize NVML|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice|CUDA_ERROR_INVALID_DEVICE"
        r"|invalid device ordinal|failed call to cuInit|No visible GPU"
        r"|backend failed to initialize"
        r"|Unable to initialize backend|named symbol not found",
        "CUDA does not start: {error}",
    ),
    _rule(
        Category.INVALID_MEMORY_ACCESS,
        r"illegal memory access|misaligned address|device-side assert|cudaErrorIllegalAddress"
        r"|Assertion `.*` failed\.$|Memory access fault by GPU|\bXid \([^)]*\): 31\b",
        "a kernel accessed invalid memory, perhaps by an index out of range{place}: {error}",
        Beside.FALLBACK,
    ),
    _rule(
        Category.COMMUNICATION,
        r"NCCL|\bnccl[A-Z]\w+|\b[Gg]loo\b|Watchdog caught|DistNetworkError|DistStoreError"
        r"|Horovod has been shut down|unhandled system error|Timed out waiting .*operation"
        r"|client socket has (?:timed out|failed)|EADDRINUSE|\bMPI_ABORT|ORTE has lost"
        r"|Rendezvous\w*(?:Timeout|Connection|Closed|Graceful|State)|[Ll]ighthouse|\b[Qq]uorum\b"
        r"|\bc10d\b|TCPStore|DistBackendError|^RuntimeError: Socket Timeout"
        r"|socket has failed to (?:listen|bind)|Address already in use|process group .*timed out"
        r"|is dead because its (?:owner|node) has died|actor died because its node"
        r"|(?i:coordination (?:service|agent)|timed out initializing process group"
        r"|\bbarrier\b.*\btimed? ?out)",
        f"{LOST_WORDS}{{error}}",
    ),
    _rule(
        Category.CUDA_FAILURE,
        r"(?i:\b(?:cuda|hip|cu(?:blas|dnn|fft|solver|sparse|rand))\b.{0,30}\b(?:error|fail\w*)\b)"
        r"|\bCU(?:DA|BLAS|DNN|FFT|SOLVER|SPARSE|RAND)_(?:STATUS_|ERROR_|\w+_ERROR)"
        r"|\bcudaError|cuda execution failed|unspecified launch failure"
        r"|the library was not initialized"
        r"|HSA_STATUS_ERROR|GPU Hang|^OutOfResources"
        r"|find (?:an engine to execute|a valid cuDNN algorithm)",
        "CUDA failed{place}: {error}",
    ),
    _rule(
        Category.PERMISSION,
        _type("Permission|Credential|Unauthori[sz]ed|Forbidden|AccessDenied|Authenticat|GatedRepo")
        + rf"|{_http('40[137]')}|{_errno(1, 13, 30)}"
        r"|(?i:permission denied|access ?(?:is )?denied|403 forbidden|401 unauthorized|gated repo"
        r"|(?:not have|no) permission|operation not permitted|read-only file system"
        r"|not authorized|unauthorized|authentication (?:failed|required|error)"
        r"|invalid[ _](?:credentials|grant|api[ _]key)"
        r"|api[ _]key (?:is )?(?:not configured|not set|missing|required|expired|invalid))"
        r"|Access to model \S+ is restricted"
        r"|ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch|Please log ?in"
        r"|StatusCode\.(?:PERMISSION_DENIED|UNAUTHENTICATED)|could not read Username",
        "something is not permitted{place}: {error}",
    ),
    _rule(
        Category.SEMANTIC,
        r"Error\(s\) in loading state_dict for (?P<model>\w+)",
        "the checkpoint does not fit the model {model}{place}",
    ),
    _rule(
        Category.IMPORT,
        r"No module named '?(?P<module>[\w.]+)'?",
        "no module named '{module}'{place}: add it to setup",
    ),
    _rule(
        Category.IMPORT,
        r"^(?:ImportError|ModuleNotFoundError): (?P<said>.*)",
        "an import failed{place}: {said}",
    ),
    _rule(
        Category.IMPORT,
        r"^ERROR: (?P<said>Could not find a version .*|No matching distribution .*)",
        "pip found no such package: {said}",
    ),
    _rule(
        Category.IMPORT,
        r"^ERROR: (?P<said>Cannot install .*|ResolutionImpossible.*|Could not install .*"
        r"|Failed building wheel .*)",
        "pip can't install: {said}",
    ),
    _rule(
        Category.IMPORT,
        r"subprocess-exited-with-error|(?:setup\.py|build wheel) .*did not run successfully"
        r"|(?i:(?:failed to build|could not build|failed building) .*wheels?)|version `GLIBC",
        "a package can't be built: {error}",
    ),
    _rule(
        Category.IMPORT,
        r"undefined symbol|cannot import name|Failed to import \S+ because|DLL load failed"
        r"|cannot open shared object file|\w\.(?:dll|so(?:\.\d+)*) (?:is )?not found"
        r"|^\w*(?:Package|Distribution)s?NotFound|Unsatisfiable"
        r"|VersionConflict|binary incompatibility|compiled against A[PB]I version"
        r"|[Nn]umpy is not available|operator \w+::\w+ does not exist|Error building extension",
        "a library can't be loaded{place}: {error}",
    ),
    _rule(
        Category.SYNTAX,
        r"^(?:SyntaxError|IndentationError|TabError): (?P<said>.*)",
        "the script is not valid Python{place}: {said}",
    ),
    _rule(
        Category.NETWORK,
        r"(?i:could(?:n't| not) connect to|check your (?:internet |network )?connection)"
        r"|^LocalEntryNotFoundError|StatusCode\.(?:UNAVAILABLE|DEADLINE_EXCEEDED)",
        "a service can't be reached{place}: {error}",
    ),
    _rule(
        Category.SEMANTIC, r"Could not find variable|\b(?:was|is) uninitialized\b", RAISED_WORDS
    ),
    _rule(
        Category.INPUT,
        r"No such file or directory: '(?P<file>.*)'",
        "there is no {file}{place}",
    ),
    _rule(
        Category.INPUT,
        r"can't open file '(?P<file>.*?)'",
        "there is no script {file}: check command and working_directory",
    ),
    _rule(
        Category.INPUT,
        r"^(?:.*: )?(?P<program>\S+): (?:command )?not found",
        "there is no program {program}: install it in setup",
    ),
    _rule(
        Category.INPUT,
        r"error: (?P<said>unrecognized arguments.*|the following arguments are.*|argument .*)"
        r"|^\S+\.py: error: (?P<of_parser>.*)|^Error: (?:Missing|No such|Got unexpected) ",
        "the script does not accept its command line: {error}",
    ),
    _rule(
        Category.INPUT,
        r"^AssertionError: .*(?:file|path|folder|director|dataset|/).*"
        r"(?:not found|not exist|n't exist|missing)"
        r"|^AssertionError: assert .*\b(?:exists|is_?file|is_?dir)\(",
        "an input is missing{place}: {error}",
    ),
    _rule(
        Category.INPUT,
        r"No such file|(?:Is|Not) a directory|NoSuchKey|NoSuchBucket|Missing mandatory value"
        + rf"|{_type('NotFound|Missing|Decode|File|ADirectory|Validation|DatasetGeneration')}"
        rf"|{_type('Unidentified|BadZip|EmptyData|Parser|Scanner|Composer|YAML|^Arrow')}"
        rf"|{_http('404|410')}|{_errno(2, 20, 21)}"
        r"|image file is truncated|could not convert string to|invalid literal for int"
        r"|[Nn]ot a gzipped file|CRC check failed|cannot identify image file"
        r"|Found 0 (?:files|images)"
        r"|does not appear to have a file named|No such option|Invalid value for"
        r"|Parquet magic bytes|num_samples=0|not a valid model identifier"
        r"|Error opening '|\.empty\(\) in function|(?i:repository\b.{0,40}\bnot found)"
        r"|(?i:unexpected(?:ly reached)? end of (?:file|data|stream))",
        "an input can't be read{place}: {error}",
    ),
    _rule(
        Category.NETWORK,
        r"(?i:connection (?:reset|refused|closed|timed out|broken|aborted|was closed))|Broken pipe"
        r"|Max retries exceeded|[Nn]ame resolution|Name or service not known"
        r"|Network is unreachable|EOF from S3"
        r"|[Rr]ead timed out|Too Many Requests"
        r"|Gateway Time-?out|Service Unavailable|IncompleteRead|SlowDown|RequestTimeout"
        rf"|{_type('Connect|ReadTimeout|Timeout(?:Error|Exception)|^SSL|Protocol|URLError|Proxy')}"
        rf"|{_type('Disconnected|ChunkedEncoding|ClientPayload|Unavailable|CommError')}"
        rf"|{_http('408|425|429|5[0-9][0-9]')}"
        rf"|{_errno(-2, -3, 32, 101, 104, 107, 110, 111, 112, 113, 116)}"
        r"|(?i:certificate verify failed|\bssl (?:connection|certificate|handshake)|\burl error\b)"
        r"|^curl: \((?:[5-7]|16|18|28|35|5[256]|60)\)|^gaierror|socket\.timeout|urlopen error"
        r"|[Cc]ould not resolve host",
        "a network connection failed{place}: {error}",
    ),
    _rule(
        Category.INPUT,
        r"(?i:(?:can(?:not|'t)|could not|unable to|failed to) "
        r"(?:load|find|open|read|decode|determine) )",
        "an input can't be read{place}: {error}",
    ),
    _rule(
        Category.DIVERGED,
        r"^(?:FloatingPoint|Diverged)Error|Loss became infinite"
        r"|(?i:\bloss\b.{0,40}\b(?:nan|inf|infinite)\b|\bnan\b.{0,20}\bloss)"
        r"|returned nan values|[Nn]on-?finite (?:loss|grad)|(?i:\bnan (?:or|and|/) ?inf\b)"
        r"|^(?:Value|Runtime|Assertion)Error: (?!.*(?:[Ii]nput|convert)).*\b(?i:nan)\b"
        r"|loss scale already at minimum|[Mm]inimum loss scale|loss scale to 0\.0"
        r"|invalid values:\s*tensor\(\[+nan|(?i:gradients?\b.{0,30}\b(?:nan|inf)\b)",
        "training diverged{place}: {error}",
    ),
    _rule(
        Category.ENDED_FROM_OUTSIDE,
        r"^SignalException: .*signal: (?P<number>\d+)",
        "the launcher was ended by signal {number}",
    ),
    _rule(
        Category.SEMANTIC,
        r"^(?:TypeError|AttributeError|NameError|UnboundLocalError|AssertionError)"
        rf"|^(?:Value|Runtime|InvalidArgument)Error: (?=.*{_TENSOR_WORDS})(?=.*{_CONFLICT_WORDS})"
        rf"|^(?:Value|Runtime)Error: .*{_DEMAND_WORDS}|{_type('[Cc]onfig|FailedPrecondition')}"
        r"|array element with a sequence"
        r"|has no attribute '|object is not (?:callable|iterable|subscriptable)|values to unpack"
        r"|re-initialize CUDA in forked|[Pp]rocess group has not been initialized"
        r"|bootstrapping phase|^\s*full_key: "
        r"|shapes? .*(?:invalid|cannot be multiplied|mismatch)|[Ss]ize mismatch"
        r"|must match the (?:existing )?size|Sizes of tensors must match|Expected all tensors"
        r"|(?:expected|found|same) (?:scalar type|dtype)|Found dtype|[Dd]type mismatch"
        r"|modified by an inplace operation|does not require grad"
        r"|through the graph a second time|finished reduction in the prior iteration"
        r"|to match target|[Tt]arget size|mat1 and mat2"
        r"|channels, but got|[Ii]ncompatible shapes|Dimensions must be equal"
        r"|number of dims don't match"
        r"|Missing key|Non-existent config key|not a valid config key|[Cc]an(?:not|'t) pickle"
        r"|more than 1 value per channel|Given groups=|Input type .* weight type"
        r"|(?:[Ii]ndex|[Dd]imension) out of range|unexpected keyword|out of bounds"
        r"|must be the same as|stack expects each tensor|created only for scalar outputs"
        r"|view size is not compatible|is invalid for input of size|not implemented for '",
        RAISED_WORDS,
    ),
    _rule(
        Category.CRASH,
        r"\bCheck failed: |[Ss]egmentation fault|\(core dumped\)|free\(\): |double free"
        r"|malloc\(\): |munmap_chunk|stack smashing detected|corrupted (?:size|double|unsorted)"
        r"|Fatal Python error|0xC0000\w{3}\b|terminate called |Assertion `.*' failed"
        rf"|free invalid pointer|Illegal instruction|[Bb]us error|{_signals(*_CRASH_SIGNALS)}",
        "the process crashed: {error}",
        Beside.FALLBACK,
    ),
    _rule(
        Category.ENDED_FROM_OUTSIDE,
        r"^KeyboardInterrupt|^SIGTERMException|(?:^|: )(?:Terminated|Hangup)$"
        r"|[Rr]eceived (?:signal )?SIG(?:TERM|INT|HUP)\b|[Cc]aught signal (?:1|2|15)\b"
        r"|TERM_(?:RUNLIMIT|OWNER|PREEMPT)"
        r"|(?i:walltime .*exceeded|exceeded .*(?:walltime|time limit))"
        r"|(?i:\bspot\b.{0,40}\b(?:interrupt|terminat|reclaim))"
        r"|Received (?:1|2|15|Signals\.SIG(?:TERM|INT|HUP)) (?:SIG\w+ )?death "
        r"|closing signal SIG(?:TERM|INT|HUP)|killed by signal: (?:Terminated|Hangup|Interrupt)"
        r"|\bCANCELLED AT\b|DUE TO (?:TIME LIMIT|PREEMPTION|JOB REQUEUE|NODE FAILURE)"
        r"|(?i:host ec2\b.*terminated|\b(?:job|instance|node|vm|task)\b.{0,30}\bpreempted)",
        "the script was ended from outside: {error}",
        Beside.FALLBACK,
    ),
)
