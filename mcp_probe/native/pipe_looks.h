/* ---- PipeLooks: how many bytes have come through a pipe, and when (twin: capture/pipe_looks.py)
 *
 * The watchdog looks without the GIL, while the reader's thread reads. Nobody waits for the other:
 * a look that a read may have crossed does not count, and the looks are a ring with one writer and
 * one reader. ---- */
#include <sys/ioctl.h>
#include <sys/resource.h>

#define LOOKS 1024 /* 65,536 bytes, a pipe's capacity, in messages of 64 bytes */

typedef struct {
    ns_t offset; /* this many bytes had come */
    ns_t first;  /* seen at, the first time */
    ns_t last;   /* and the last */
} look_t;

typedef struct {
    PyObject_HEAD
    int descriptor;
    unsigned int reads; /* odd while a read is under way */
    ns_t read_bytes;
    long slept;                 /* how often the reader's thread had slept as its read began */
    unsigned int written, read; /* of the ring */
    look_t ring[LOOKS];
} PipeLooks;

/* Bytes in the pipe now, or -1. */
static long bytes_ready(PipeLooks *self)
{
    int size = 0, descriptor = self->descriptor;
    return descriptor < 0 || ioctl(descriptor, FIONREAD, &size) < 0 ? -1 : size;
}

/* How often the calling thread has given up its processor to wait, or -1. */
static long sleeps_so_far(void)
{
#ifdef RUSAGE_THREAD
    struct rusage used;
    return getrusage(RUSAGE_THREAD, &used) ? -1 : used.ru_nvcsw;
#else
    return -1;
#endif
}

/* The watchdog's thread, without the GIL. */
static void look(PipeLooks *self)
{
    unsigned int reads = __atomic_load_n(&self->reads, __ATOMIC_SEQ_CST);
    if (reads & 1)
        return;
    ns_t offset = __atomic_load_n(&self->read_bytes, __ATOMIC_SEQ_CST), before = now_ns();
    long ready = bytes_ready(self);
    ns_t after = now_ns();
    if (ready < 0 || __atomic_load_n(&self->reads, __ATOMIC_SEQ_CST) != reads)
        return;
    offset += ready;
    unsigned int written = self->written,
                 used = written - __atomic_load_n(&self->read, __ATOMIC_ACQUIRE);
    look_t *newest = &self->ring[(written - 1) % LOOKS];
    if (used > 0 && newest->offset == offset) {
        __atomic_store_n(&newest->last, before, __ATOMIC_RELAXED);
    } else if (used < LOOKS) { /* a full ring leaves wider bounds, and still true ones */
        look_t *next = &self->ring[written % LOOKS];
        next->offset = offset;
        next->first = after;
        __atomic_store_n(&next->last, before, __ATOMIC_RELAXED);
        __atomic_store_n(&self->written, written + 1, __ATOMIC_RELEASE);
    }
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
    __atomic_store_n(&self->reads, (self->reads + 2) | 1, __ATOMIC_SEQ_CST);
    self->slept = sleeps_so_far();
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
    long slept = sleeps_so_far();
    __atomic_store_n(&self->read_bytes, self->read_bytes + size, __ATOMIC_SEQ_CST);
    __atomic_store_n(&self->reads, (self->reads | 1) + 1, __ATOMIC_SEQ_CST);
    return PyLong_FromLong(slept < 0 || self->slept < 0 ? 0 : slept - self->slept);
}

static PyObject *pipe_looks_take(PipeLooks *self, PyObject *ignored)
{
    unsigned int written = __atomic_load_n(&self->written, __ATOMIC_ACQUIRE), read = self->read;
    PyObject *taken = PyList_New(0);
    for (; taken != NULL && read != written; read++) {
        look_t *each = &self->ring[read % LOOKS];
        PyObject *row = Py_BuildValue("(LLL)", each->offset, each->first,
                                      __atomic_load_n(&each->last, __ATOMIC_RELAXED));
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
        self->descriptor = -1;
    return (PyObject *)self;
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
    {"descriptor", T_INT, offsetof(PipeLooks, descriptor), 0, NULL}, {NULL}};
static PyType_Slot pipe_looks_slots[] = {{Py_tp_new, pipe_looks_new},
                                         {Py_tp_methods, pipe_looks_methods},
                                         {Py_tp_members, pipe_looks_members},
                                         {0, NULL}};
static PyType_Spec pipe_looks_spec = {"mcp_probe.native._core.PipeLooks", sizeof(PipeLooks), 0,
                                      Py_TPFLAGS_DEFAULT, pipe_looks_slots};
