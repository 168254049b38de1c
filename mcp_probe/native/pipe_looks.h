/* ---- PipeLooks: how many bytes have come through a pipe, and when (twin: capture/pipe_looks.py)
 *
 * Who looks does so without the GIL, while the reader's thread reads. Nobody waits for the other: a
 * look that a read may have crossed does not count, and the looks are a ring with one writer at a
 * time and one reader. A read that has its bytes may wait long for the GIL; where the system tells
 * what the reader's thread waits for, and how much it has read, looks during that time count too.
 * How long it waited for a CPU is in /proc/…/schedstat, which stays open from read to read. ---- */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define LOOKS 1024 /* 65,536 bytes, a pipe's capacity, in messages of 64 bytes */

typedef struct {
    ns_t offset;        /* this many bytes had come */
    ns_t first;         /* seen at, the first time */
    ns_t last;          /* and the last */
    unsigned int reads; /* not 0: and those of the read that was under way */
    ns_t taken;         /* then: bytes that its thread had read by any call */
} look_t;

typedef struct {
    PyObject_HEAD
    int descriptor;
    char unattended;             /* its reader waits for a thread, or nobody can tell */
    char looking;                /* by one thread at a time */
    long reader;                 /* the thread that reads */
    unsigned int reads;          /* odd while a read is under way */
    ns_t read_bytes, last_bytes; /* of all reads, of the last */
    ns_t taken;                  /* by its thread as the last one ended */
    long slept;                  /* how often the reader's thread had slept as its read began */
    ns_t queued;                 /* and how long it had waited for a CPU */
    int schedstat;               /* that file of the thread schedstat_of, or -1 */
    long schedstat_of;
    unsigned int written, read; /* of the ring */
    look_t ring[LOOKS];
} PipeLooks;

/* Bytes in the pipe now, or -1. */
static long bytes_ready(PipeLooks *self)
{
    int size = 0, descriptor = self->descriptor;
    return descriptor < 0 || ioctl(descriptor, FIONREAD, &size) < 0 ? -1 : size;
}

/* How long the reader's thread, which calls this, has waited for a CPU, or -1. */
static ns_t queued_so_far(PipeLooks *self)
{
    char text[96];
    long long queued;
    if (self->schedstat_of != self->reader) {
        snprintf(text, sizeof text, "/proc/self/task/%ld/schedstat", self->reader);
        close(self->schedstat); /* of another thread, or -1 */
        self->schedstat = open(text, O_RDONLY | O_CLOEXEC);
        self->schedstat_of = self->reader;
    }
    ssize_t size = pread(self->schedstat, text, sizeof text - 1, 0);
    text[size > 0 ? size : 0] = 0; /* "ran queued slices" */
    return sscanf(text, "%*s %lld", &queued) == 1 ? queued : -1;
}

/* One of the files on that thread in /proc. Returns its size; 0 if it cannot be read. */
static ssize_t of_thread(long thread, const char *name, char text[64])
{
    snprintf(text, 64, "/proc/self/task/%ld/%s", thread, name);
    int file = open(text, O_RDONLY | O_CLOEXEC);
    ssize_t size = read(file, text, 63);
    close(file);
    text[size > 0 ? size : 0] = 0;
    return size > 0 ? size : 0;
}

/* Bytes that the reader's thread has read so far, or -1. */
static ns_t taken_so_far(PipeLooks *self)
{
    char text[64];
    long long taken;
    return of_thread(self->reader, "io", text) && sscanf(text, "rchar: %lld", &taken) == 1 ? taken
                                                                                           : -1;
}

enum { UNKNOWN, IN_READ, HAS_READ };

/* What the reader's thread does in the read that is under way. */
static int reading(PipeLooks *self)
{
#ifdef __linux__
    char text[64];
    long call, descriptor;
    /* "running", or the number and arguments of the system call that it sleeps in. */
    if (!of_thread(self->reader, "syscall", text) ||
        sscanf(text, "%ld 0x%lx", &call, &descriptor) != 2)
        return UNKNOWN;
    if (call == SYS_read)
        return descriptor == self->descriptor ? IN_READ : UNKNOWN;
    return call == SYS_futex ? HAS_READ : UNKNOWN; /* it waits for the GIL */
#else
    return UNKNOWN;
#endif
}

static void note_look(PipeLooks *self, look_t found)
{
    unsigned int written = self->written,
                 used = written - __atomic_load_n(&self->read, __ATOMIC_ACQUIRE);
    look_t *newest = &self->ring[(written - 1) % LOOKS];
    if (used > 0 && newest->offset == found.offset && newest->reads == found.reads) {
        __atomic_store_n(&newest->last, found.last, __ATOMIC_RELAXED);
    } else if (used < LOOKS) { /* a full ring leaves wider bounds, and still true ones */
        self->ring[written % LOOKS] = found;
        __atomic_store_n(&self->written, written + 1, __ATOMIC_RELEASE);
    }
}

/* Any thread, without the GIL. */
static void look(PipeLooks *self)
{
    if (__atomic_test_and_set(&self->looking, __ATOMIC_ACQUIRE))
        return; /* another does */
    unsigned int reads = __atomic_load_n(&self->reads, __ATOMIC_SEQ_CST), within = reads & 1;
    look_t found = {.offset = __atomic_load_n(&self->read_bytes, __ATOMIC_SEQ_CST)};
    int doing = within ? reading(self) : IN_READ;
    found.last = now_ns();
    long ready = bytes_ready(self);
    found.first = now_ns();
    found.offset += ready;
    found.reads = doing == HAS_READ ? reads : 0;
    found.taken = found.reads ? taken_so_far(self) : 0;
    if (ready >= 0 && doing != UNKNOWN && (found.reads || !within || reading(self) == IN_READ) &&
        __atomic_load_n(&self->reads, __ATOMIC_SEQ_CST) == reads)
        note_look(self, found);
    __atomic_clear(&self->looking, __ATOMIC_RELEASE);
}

static PyObject *pipe_looks_look(PipeLooks *self, PyObject *ignored)
{
    look(self);
    Py_RETURN_NONE;
}

static PyObject *pipe_looks_ready(PipeLooks *self, PyObject *ignored)
{
    long ready = bytes_ready(self);
    if (ready < 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(ready);
}

static PyObject *pipe_looks_begin(PipeLooks *self, PyObject *ignored)
{
#ifdef __linux__
    self->reader = syscall(SYS_gettid);
#endif
    __atomic_store_n(&self->reads, (self->reads + 2) | 1, __ATOMIC_SEQ_CST);
    self->slept = switches_so_far().sleeps;
    self->queued = queued_so_far(self);
    ns_t before = now_ns();
    long ready = bytes_ready(self);
    ns_t after = now_ns();
    PyObject *found = ready < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(ready);
    return Py_BuildValue("(NLL)", found, before, after);
}

static PyObject *pipe_looks_end(PipeLooks *self, PyObject *count)
{
    ns_t size = PyLong_AsLongLong(count);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    unsigned int newest = __atomic_load_n(&self->written, __ATOMIC_ACQUIRE) - 1;
    int is_seen = self->ring[newest % LOOKS].reads == self->reads;
    ns_t taken = is_seen ? taken_so_far(self) : -1; /* before this thread reads anything else */
    long slept = switches_so_far().sleeps - self->slept;
    ns_t queued = queued_so_far(self);
    self->last_bytes = size;
    self->taken = taken;
    __atomic_store_n(&self->read_bytes, self->read_bytes + size, __ATOMIC_SEQ_CST);
    __atomic_store_n(&self->reads, (self->reads | 1) + 1, __ATOMIC_SEQ_CST);
    queued = queued < 0 || self->queued < 0 ? 0 : queued - self->queued;
    return Py_BuildValue("(lL)", slept, queued);
}

static PyObject *pipe_looks_take(PipeLooks *self, PyObject *ignored)
{
    unsigned int written = __atomic_load_n(&self->written, __ATOMIC_ACQUIRE), read = self->read;
    PyObject *taken = PyList_New(0);
    for (; taken != NULL && read != written; read++) {
        look_t *each = &self->ring[read % LOOKS];
        if (each->reads && (each->reads + 1 != self->reads || each->taken != self->taken))
            continue; /* of a read that is over: it was told too late; or before it had its bytes */
        PyObject *row = Py_BuildValue("(LLL)", each->offset + (each->reads ? self->last_bytes : 0),
                                      each->first, __atomic_load_n(&each->last, __ATOMIC_RELAXED));
        if (row == NULL || PyList_Append(taken, row) < 0)
            Py_CLEAR(taken);
        Py_XDECREF(row);
    }
    __atomic_store_n(&self->read, written, __ATOMIC_RELEASE);
    return taken;
}

static PyObject *pipe_looks_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (!PyArg_ParseTuple(args, ""))
        return NULL;
    PipeLooks *self = (PipeLooks *)PyType_GenericAlloc(type, 0);
    if (self != NULL)
        self->descriptor = self->schedstat = -1;
    return (PyObject *)self;
}

static void pipe_looks_dealloc(PipeLooks *self)
{
    PyTypeObject *type = Py_TYPE(self);
    close(self->schedstat);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyTypeObject *pipe_looks_type;
static PyMethodDef pipe_looks_methods[] = {
    {"look", (PyCFunction)pipe_looks_look, METH_NOARGS, NULL},
    {"ready", (PyCFunction)pipe_looks_ready, METH_NOARGS, NULL},
    {"begin", (PyCFunction)pipe_looks_begin, METH_NOARGS, NULL},
    {"end", (PyCFunction)pipe_looks_end, METH_O, NULL},
    {"take", (PyCFunction)pipe_looks_take, METH_NOARGS, NULL},
    {NULL}};
static PyMemberDef pipe_looks_members[] = {
    {"descriptor", T_INT, offsetof(PipeLooks, descriptor), 0, NULL},
    {"unattended", T_BOOL, offsetof(PipeLooks, unattended), 0, NULL},
    {NULL}};
static PyType_Slot pipe_looks_slots[] = {{Py_tp_new, pipe_looks_new},
                                         {Py_tp_dealloc, pipe_looks_dealloc},
                                         {Py_tp_methods, pipe_looks_methods},
                                         {Py_tp_members, pipe_looks_members},
                                         {0, NULL}};
static PyType_Spec pipe_looks_spec = {"mcp_probe.native._core.PipeLooks", sizeof(PipeLooks), 0,
                                      Py_TPFLAGS_DEFAULT, pipe_looks_slots};
