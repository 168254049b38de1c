/* The hot path in C: what capture writes while a request lives, a loop's steps and polls, and the loop's own
 * call_soon, select and _run_once around them.
 *
 * Twin of the Python in record/raw.py (Request), capture/steps.py (Steps), adapters/asyncio_loop.py (Handle, Timer,
 * Schedule, Poll, Turn), adapters/asgi.py (Entrance, Send), adapters/mcp2.py (Claims) and others that its files name;
 * tests run both. Everything here runs under the GIL; nothing is called while a field is half set.
 * One translation unit in files by type, included below in the order in which they need each other.
 * Limited API of CPython 3.10, plus a few functions every release from 3.10 to 3.13 exports with the same signature
 * (declared in base.h); mcp_probe/native/__init__.py loads this module on those releases only.
 */
#include "base.h"
#include "account.h"
#include "blocks.h"
#include "small.h"
#include "allocator.h"
#include "request.h"
#include "memory.h"
#include "record.h"
#include "steps.h"
#include "attributes.h"
#include "handle.h"
#include "socket.h"
#include "schedule.h"
#include "timer.h"
#include "poll.h"
#include "turn.h"
#include "desk.h"
#include "finished.h"
#include "read.h"
#include "channel.h"
#include "transport.h"
#include "readings.h"
#include "watch.h"
#include "sums.h"
#include "uses.h"
#include "flight.h"
#include "tally.h"
#include "lots.h"
#include "exponential.h"
#include "exchange.h"
#include "spans.h"
#include "awaited.h"
#include "send.h"
#include "claims.h"
#include "entrance.h"

/* ---- the module ---- */

static PyObject *core_now(PyObject *module, PyObject *ignored)
{
    return PyLong_FromLongLong(now_ns());
}

static PyObject *core_configure(PyObject *module, PyObject *args)
{
    PyObject *var, *step, *wakeup, *task, *function, *handle, *run, *append, *report, *describe;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOO", &var, &step, &wakeup, &task, &function, &handle, &run, &append, &report,
                          &describe))
        return NULL;
    if (!PyType_Check(step) || !PyType_Check(wakeup) || !PyType_Check(task)) {
        PyErr_SetString(PyExc_TypeError, "configure() takes types for step, wakeup and task");
        return NULL;
    }
    keep(&current_var, var);
    keep(&step_type, step);
    keep(&wakeup_type, wakeup);
    keep(&task_type, task);
    keep(&function_type, function);
    keep(&handle_class, handle);
    keep(&handle_run_original, run);
    keep(&deque_append, append);
    keep(&report_exception, report);
    keep(&describe_handle, describe);
    Py_RETURN_NONE;
}

static PyObject *core_messages(PyObject *module, PyObject *args)
{
    PyObject *known, *request, *notification, *result, *error, *named, *current, *exchange, *kind, *name, *failure,
        *answer;
    if (!PyArg_ParseTuple(args, "O!OOOOOOOOOOOLn", &PyDict_Type, &known, &request, &notification, &result, &error,
                          &named, &current, &exchange, &kind, &name, &failure, &answer, &max_live, &max_name))
        return NULL;
    keep(&current_var, current); /* an asyncio that is not known to us never gets as far as configure() */
    keep(&kinds, known);
    keep(&kind_request, request);
    keep(&kind_notification, notification);
    keep(&kind_result, result);
    keep(&kind_error, error);
    keep(&named_methods, named);
    keep(&exchange_var, exchange);
    keep(&find_kind, kind);
    keep(&find_name, name);
    keep(&note_error, failure);
    keep(&note_result, answer);
    Py_RETURN_NONE;
}

static int take_shape(shape_t *shape, PyObject *type, PyObject *rows)
{
    Py_ssize_t count = PyList_Check(rows) ? PyList_Size(rows) : -1;
    if (!PyType_Check(type) || count < 0 || count > MAX_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "a shape is a class and a list of (name, default)");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name, *value;
        if (!PyArg_ParseTuple(PyList_GetItem(rows, i), "UO", &name, &value))
            return -1;
        keep(&shape->names[i], name);
        keep(&shape->defaults[i], value);
    }
    shape->count = (int)count;
    keep(&shape->type, type);
    return 0;
}

static int is_named(const shape_t *shape, int index, const char *name)
{
    return index < shape->count && PyUnicode_CompareWithASCIIString(shape->names[index], name) == 0;
}

static PyObject *core_shapes(PyObject *module, PyObject *args)
{
    PyObject *record, *record_rows, *budget, *budget_rows;
    if (!PyArg_ParseTuple(args, "OOOO", &record, &record_rows, &budget, &budget_rows))
        return NULL;
    if (take_shape(&budget_shape, budget, budget_rows) < 0 || take_shape(&record_shape, record, record_rows) < 0)
        return NULL;
    for (int i = 0; i < KNOWN_FIELDS || i < KNOWN_PARTS; i++)
        if ((i < KNOWN_FIELDS && !is_named(&record_shape, i, known_fields[i])) ||
            (i < KNOWN_PARTS && !is_named(&budget_shape, i, known_parts[i]))) {
            Py_CLEAR(record_shape.type);
            PyErr_Format(PyExc_ValueError, "field %d of a record or budget is not the one that Request.record sets", i);
            return NULL;
        }
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {{"now_ns", core_now, METH_NOARGS, "Monotonic nanoseconds, as clock.now_ns."},
                                     {"shapes", core_shapes, METH_VARARGS,
                                      "The classes that Request.record makes, with their fields and defaults."},
                                     {"messages", core_messages, METH_VARARGS,
                                      "What capture/queueing.py knows of messages."},
                                     {"doze", core_doze, METH_VARARGS,
                                      "Tick until a step is over the limit (True), or for so long (False)."},
                                     {"rouse", core_rouse, METH_NOARGS, "End a doze that waits for a loop to begin something."},
                                     {"exchange_of", (PyCFunction)core_exchange_of, METH_FASTCALL,
                                      "An HTTP exchange, from its headers and the track of its loop."},
                                     {"http", core_http, METH_VARARGS, "What adapters/mcp2.py knows of messages over HTTP."},
                                     {"sum_up", core_sum_up, METH_VARARGS,
                                      "Sum requests up that have ended and need no record."},
                                     {"lots", core_lots, METH_VARARGS,
                                      "Sort plain requests that have ended by what they are called; those whose records are wanted."},
                                     {"note_small_steps", core_note_small_steps, METH_VARARGS,
                                      "Add what these requests took in short steps to {operation: [count, total]}."},
                                     {"transport_levels", core_transport_levels, METH_VARARGS,
                                      "What the transport's own jobs did to a pool."},
                                     {"memory_install", core_memory_install, METH_O,
                                      "Hook Python's allocator: \"gross\", \"hybrid\" or \"shadow\"."},
                                     {"memory_uninstall", core_memory_uninstall, METH_NOARGS, "Take the hooks out."},
                                     {"memory_state", core_memory_state, METH_NOARGS,
                                      "What the hooks are, and whether what they counted is valid."},
                                     {"memory_blocks", core_memory_blocks, METH_VARARGS,
                                      "[(address, size), ...] of blocks that these requests still hold, at most so many."},
                                     {"charge", core_charge, METH_O,
                                      "What this thread allocates belongs to the request from now on; returns the one before."},
                                     {"configure", core_configure, METH_VARARGS,
                                      "What adapters/asyncio_loop.py found out about this interpreter."},
                                     {NULL}};
static struct PyModuleDef core_module = {PyModuleDef_HEAD_INIT, "mcp_probe.native._core", NULL, -1, core_methods};

static int make_names(void)
{
    static const name_t names[] = {{&str_closed, "_closed"},   {&str_debug, "_debug"},     {&str_ready, "_ready"},
                 {&str_self, "__self__"},    {&str_done, "done"},        {&str_keep, "_keep"},
                 {&str_settle, "settle"},    {&str_charge, "_charge"},   {&str_write_to_self, "_write_to_self"},
                 {&str_run, "_run"},         {&str_broken, "broken"},    {&str_context, "context"},
                 {&str_writing, "writing"},  {&str_flushed, "flushed"},  {&str__context, "_context"},
                 {&str_callback, "_callback"}, {&str_args, "_args"},
                 {&str_get, "get"},          {&str_message, "message"}, {&str_params, "params"},
                 {&str_name, "name"},        {&str_method, "method"},    {&str_id, "id"},
                 {&str_error, "error"},      {&str_result, "result"},    {&str_is_error, "isError"},
                 {&str_forget, "forget"},    {&str_finish, "finish"},    {&str_consumed, "consumed"},
                 {&str_waiting, "waiting"},  {&str_arrived_by, "_arrived_by"},
                 {&str_answered, "_answered"},                           {&str_asking, "_asking"},
                 {&cancelled_outcome, "cancelled"},                      {&ok_outcome, "ok"},
                 {&kind_request, "request"}, {&kind_notification, "notification"}};
    if (INTERN(names) < 0)
        return -1;
    return (empty_tuple = PyTuple_New(0)) == NULL ? -1 : 0;
}

static PyObject *add_subtype(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject *base)
{
    PyObject *type = PyType_FromSpecWithBases(spec, (PyObject *)base);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return type;
}

static PyObject *add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    return add_subtype(module, name, spec, NULL);
}

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&core_module);
    if (module == NULL || make_names() < 0 || make_http_names() < 0 || make_use_names() < 0 || make_read_names() < 0 ||
        make_timer_names() < 0 || make_turn_names() < 0 || make_span_names() < 0 || sem_init(&rouse_watchdog, 0, 0) < 0)
        return NULL;
    request_type = (PyTypeObject *)add_type(module, "Request", &request_spec);
    steps_type = (PyTypeObject *)add_type(module, "Steps", &steps_spec);
    handle_type = (PyTypeObject *)add_type(module, "Handle", &handle_spec);
    timer_type = handle_type == NULL ? NULL : (PyTypeObject *)add_subtype(module, "Timer", &timer_spec, handle_type);
    PyObject *schedule = add_type(module, "Schedule", &schedule_spec), *poll = add_type(module, "Poll", &poll_spec),
             *transport = add_type(module, "TransportCall", &transport_spec);
    socket_type = (PyTypeObject *)add_type(module, "SocketReady", &socket_spec);
    desk_type = (PyTypeObject *)add_type(module, "Desk", &desk_spec);
    lines_type = (PyTypeObject *)add_type(module, "LineStamps", &lines_spec);
    PyObject *channel = add_type(module, "Channel", &channel_spec),
             *buffer = add_type(module, "StampedBuffer", &buffer_spec);
    readings_type = (PyTypeObject *)add_type(module, "Readings", &readings_spec);
    sums_type = (PyTypeObject *)add_type(module, "Sums", &sums_spec);
    uses_type = (PyTypeObject *)add_type(module, "Uses", &uses_spec);
    sweep_type = (PyTypeObject *)add_type(module, "Sweep", &sweep_spec);
    PyObject *finished = add_type(module, "Finished", &finished_spec), *timers = add_type(module, "Timers", &timers_spec),
             *claims = add_type(module, "Claims", &claims_spec), *entrance = add_type(module, "Entrance", &entrance_spec);
    PyObject *turn = add_type(module, "Turn", &turn_spec), *row = add_type(module, "Row", &row_spec);
    send_type = (PyTypeObject *)add_type(module, "Send", &send_spec);
    exchange_type = (PyTypeObject *)add_type(module, "Exchange", &exchange_spec);
    awaited_type = (PyTypeObject *)add_type(module, "Awaited", &awaited_spec);
    known_span_type = (PyTypeObject *)add_type(module, "KnownSpan", &known_span_spec);
    spans_type = (PyTypeObject *)add_type(module, "Spans", &spans_spec);
    const void *made[] = {request_type, steps_type, handle_type, timer_type, schedule, poll, transport, socket_type,
                          desk_type, lines_type, channel, buffer, readings_type, sums_type, uses_type, sweep_type, finished,
                          timers, claims, entrance, turn, row, send_type, exchange_type, awaited_type,
                          known_span_type, spans_type};
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
        if (made[i] == NULL)
            return NULL;
    keep(&poll_type, poll);
    return module;
}
