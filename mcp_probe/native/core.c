/* What stamps: requests, the steps and polls of a loop, its handles, the watchdog's clock.
 *
 * Twins in Python stand in record/raw.py (Request), capture/loop_steps.py (Steps),
 * adapters/asyncio_handles.py (handles), capture/readings.py (Readings, park) and
 * capture/pipe_looks.py (PipeLooks, PipeLooker); tests run both.
 * Everything here wraps and calls the original. It runs under the GIL but where it says otherwise;
 * nothing is called while a field is half set. One translation unit in files by type, included
 * below in the order in which they need each other.
 */
#include "base.h"
#include "request.h"

static PyObject *str_self, *str_done, *str_keep, *str_settle, *str_charge, *str_run, *str_init,
    *str_broken, *str_get, *str_begin;
static PyTypeObject *steps_type;

#include "request_type.h"
#include "steps.h"
#include "handle.h"
#include "readings.h"
#include "poll.h"
#include "pipe_looks.h"
#include "watch.h"

/* ---- the module ---- */

static PyObject *core_now(PyObject *module, PyObject *ignored)
{
    return PyLong_FromLongLong(now_ns());
}

/* From now on memory is measured by what the capsule holds. */
static PyObject *core_measure_memory(PyObject *module, PyObject *capsule)
{
    const memory_hooks_t *hooks = PyCapsule_GetPointer(capsule, MEMORY_CAPSULE);
    if (hooks == NULL)
        return NULL;
    memory_hooks = hooks;
    Py_RETURN_NONE;
}

static PyObject *core_configure(PyObject *module, PyObject *args)
{
    PyObject *var, *step, *wakeup, *task, *function;
    if (!PyArg_ParseTuple(args, "OO!O!O!O", &var, &PyType_Type, &step, &PyType_Type, &wakeup,
                          &PyType_Type, &task, &function))
        return NULL;
    keep(&current_var, var);
    keep(&step_type, step);
    keep(&wakeup_type, wakeup);
    keep(&task_type, task);
    keep(&function_type, function);
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {
    {"now_ns", core_now, METH_NOARGS, "Monotonic nanoseconds, as clock.now_ns."},
    {"configure", core_configure, METH_VARARGS,
     "What adapters/asyncio_loop.py found out about this interpreter."},
    {"handle_class", core_handle_class, METH_VARARGS,
     "Our subclass, of this metaclass, of one of asyncio's classes of handles."},
    {"follow", core_follow, METH_O, "The loop of these steps runs on its thread from now on."},
    {"unfollow", core_unfollow, METH_O, "It runs there no longer."},
    {"park", core_park, METH_VARARGS,
     "Sleep until a step is over the limit (True), or for so long (False)."},
    {"wake", core_wake, METH_NOARGS, "End a park() that waits for a loop to begin something."},
    {"frame_of", core_frame_of, METH_O,
     "The innermost frame of a thread of the main interpreter, or None."},
    {"measure_memory", core_measure_memory, METH_O,
     "Memory is measured by the hooks in this capsule of _memory's."},
    {NULL}};
static struct PyModuleDef core_module = {PyModuleDef_HEAD_INIT, "mcp_probe.native._core", NULL, -1,
                                         core_methods};

static int make_names(void)
{
    static const struct {
        PyObject **slot;
        const char *text;
    } names[] = {{&str_self, "__self__"}, {&str_done, "done"},      {&str_keep, "_keep"},
                 {&str_settle, "settle"}, {&str_charge, "_charge"}, {&str_run, "_run"},
                 {&str_init, "__init__"}, {&str_broken, "broken"},  {&str_get, "get"},
                 {&str_begin, "begin"},   {&ok_outcome, "ok"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((*names[i].slot = PyUnicode_InternFromString(names[i].text)) == NULL)
            return -1;
    return (empty_tuple = PyTuple_New(0)) == NULL ? -1 : 0;
}

static PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&core_module);
    if (module == NULL || make_names() < 0 || sem_init(&watchdog_woken, 0, 0) < 0 ||
        (request_type = add_type(module, "Request", &request_spec)) == NULL ||
        (steps_type = add_type(module, "Steps", &steps_spec)) == NULL ||
        (readings_type = add_type(module, "Readings", &readings_spec)) == NULL ||
        (pipe_looks_type = add_type(module, "PipeLooks", &pipe_looks_spec)) == NULL ||
        (pipe_looker_type = add_type(module, "PipeLooker", &pipe_looker_spec)) == NULL ||
        add_type(module, "Poll", &poll_spec) == NULL)
        return NULL;
    return module;
}
