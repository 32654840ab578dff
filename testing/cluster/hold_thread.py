#!/usr/bin/env python3
"""Holds one thread of a process, as a debugger does, while the other threads go on.

  hold_thread.py PID THREAD SECONDS

THREAD is the name of the thread. Prints "held" when it stands still, and "released" when it goes on after SECONDS, or
"ended" when the process has ended before. Exit status 0 for both, 66 if there is no such thread, 77 if the system does
not allow it.
"""
import ctypes
import os
import signal
import sys
import time

# From <sys/ptrace.h>, the same on all architectures.
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000  # waits for threads as well

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def thread_of(pid, name):
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm") as comm:
            if comm.read().strip() == name:
                return int(thread)
    return None


def ptrace(request, thread):
    if libc.ptrace(request, thread, None, None) != 0:
        print(f"hold_thread.py: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        sys.exit(77)


def main():
    pid, name, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    thread = thread_of(pid, name)
    if thread is None:
        print(f"hold_thread.py: process {pid} has no thread {name}", file=sys.stderr)
        return 66
    ptrace(PTRACE_SEIZE, thread)
    ptrace(PTRACE_INTERRUPT, thread)
    _, status = os.waitpid(thread, WALL)
    if not os.WIFSTOPPED(status):
        print("ended", flush=True)
        return 0
    print("held", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
        # The parent of the process learns of its end only when this thread has been waited for.
        if os.waitpid(thread, WALL | os.WNOHANG)[0] == thread:
            print("ended", flush=True)
            return 0
    ptrace(PTRACE_DETACH, thread)
    print("released", flush=True)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the kernel releases the thread then
    sys.exit(main())
