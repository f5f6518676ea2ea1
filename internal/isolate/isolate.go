// Package isolate starts programs that cannot open some device nodes. A library such as
// XRT takes every device whose node is there, and no variable hides one from it. So the
// program gets a mount namespace of its own (mount_namespaces(7)) without these nodes.
//
// Root needs no more. Any other user gets a user namespace too (user_namespaces(7)), in
// which only this user and group exist. So ids inside are those outside, the program has
// no capability, set-user-ID programs such as sudo have no effect, and no_new_privs is
// set, because a program with file capabilities could else undo the mounts. A further
// user namespace that the program makes cannot undo them either, because mounts of an
// outer namespace are locked there.
package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program is what to execute.
type Program struct {
	Path string   // of the executable file
	Args []string // with the name of the program
	Env  []string // NAME=VALUE
	// Isolated gives the program a mount namespace, in which Hidden cannot be opened, and
	// Covers are made.
	Isolated bool
	Dev      string   // directory of device nodes, such as /dev
	Hidden   []string // paths of nodes, without links
	Covers   []Cover
	// Name is that of what is mounted over a directory with hidden nodes
	// (proc_pid_mountinfo(5)).
	Name string
}

// Cover is a file that an isolated program reads in place of another one.
type Cover struct{ File, Path string }

// Forbidden is the error that this machine does not allow the namespaces: why, and what
// to do about it.
type Forbidden struct {
	Why, Remedy string
	Err         error
}

func (f *Forbidden) Error() string { return f.Why + ": " + f.Err.Error() }

func (f *Forbidden) Unwrap() error { return f.Err }

// ExecError is the error of execve(2).
type ExecError struct {
	Path string
	Err  error
}

func (e *ExecError) Error() string { return e.Path + ": " + e.Err.Error() }

func (e *ExecError) Unwrap() error { return e.Err }

// NeedsChild reports whether the program must be a child of this process, because only a
// new process of one thread can enter a user namespace: Start it. Else Exec can replace
// this process by it.
func (p *Program) NeedsChild() bool { return p.Isolated && os.Geteuid() != 0 }

// Exec replaces this process by the program. It returns only if that fails: with a
// [*Forbidden], an [*ExecError] or the error of a mount.
func (p *Program) Exec() error {
	// Namespaces are those of a thread, and the thread that calls execve(2) becomes the
	// process.
	runtime.LockOSThread()
	if p.Isolated {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return forbidden(err)
		}
		if err := p.hide(); err != nil {
			return err
		}
	}
	return p.exec()
}

func (p *Program) exec() error {
	if p.Isolated {
		if err := closeDirectories(); err != nil {
			return err
		}
	}
	return &ExecError{p.Path, unix.Exec(p.Path, p.Args, p.Env)}
}

// Child is a child process in namespaces of its own. It waits until it can read which
// program to become. To start it takes longer than to isolate it, so a caller who will
// need one starts it before all else.
type Child struct {
	pid  int
	plan *os.File // what is written here is read by Continue in the child
}

// Stage is the name (argv[0]) of this executable in a Child; see Continue.
const Stage = "lpuctl-isolate"

// planDescriptor is the lowest number of the descriptor by which a Child reads. What it
// inherits besides has mostly lower ones.
const planDescriptor = 50

// Prepare starts a child, which is this very executable: it must call Continue at its
// start. If this process ends before it calls Start, so does the child. The error is a
// [*Forbidden] or that of pipe(2).
func Prepare() (*Child, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	inherited, err := unix.FcntlInt(read.Fd(), unix.F_DUPFD, planDescriptor)
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	defer func() { _ = unix.Close(inherited) }()
	attr := &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS},
	}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		attr.Sys.Cloneflags |= unix.CLONE_NEWUSER
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		// It is kept across execve(2), until Continue drops it.
		attr.Sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{Stage, strconv.Itoa(inherited)}, attr)
	if err != nil {
		_ = write.Close()
		return nil, forbidden(err)
	}
	return &Child{pid, write}, nil
}

// Start makes a child become the program, which is isolated, and returns its process id.
// What goes wrong from here on the child says.
func (c *Child) Start(p *Program) (pid int, err error) {
	return c.pid, errors.Join(json.NewEncoder(c.plan).Encode(p), c.plan.Close())
}

// Start starts the program as a child with the same standard streams, and returns its
// process id. The error is an [*ExecError], or that of Prepare if the program is
// isolated.
func (p *Program) Start() (pid int, err error) {
	if p.Isolated {
		child, err := Prepare()
		if err != nil {
			return 0, err
		}
		return child.Start(p)
	}
	pid, err = syscall.ForkExec(p.Path, p.Args, &syscall.ProcAttr{Env: p.Env, Files: []uintptr{0, 1, 2}})
	if err != nil {
		err = &ExecError{p.Path, err}
	}
	return pid, err
}

// ErrAbandoned says that the process that has prepared this one has ended, or wants
// nothing of it.
var ErrAbandoned = errors.New("there is nothing to execute")

// Continue is what a Child does: it reads which program it is to become, hides the nodes
// and executes the program. It returns nil in any other process, and else only errors:
// ErrAbandoned and those of Exec.
func Continue(args []string) error {
	if len(args) != 2 || args[0] != Stage {
		return nil
	}
	runtime.LockOSThread()
	number, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	plan := os.NewFile(uintptr(number), "plan")
	var p Program
	err = json.NewDecoder(plan).Decode(&p)
	if errors.Is(err, io.EOF) {
		return ErrAbandoned
	}
	err = errors.Join(err, plan.Close())
	if err == nil {
		err = p.hide()
	}
	if err == nil && os.Geteuid() != 0 {
		err = dropRights()
	}
	if err != nil {
		return err
	}
	return p.exec()
}

// dropRights leaves this thread and what it executes without the capability to mount, for
// good.
func dropRights() error {
	none := [2]unix.CapUserData{} // two words of 32 capabilities each, by version 3
	return errors.Join(
		unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0),
		unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
	)
}

// forbidden says why the kernel does not allow namespaces.
func forbidden(err error) error {
	f := &Forbidden{
		Why: "this kernel, or the container that this runs in, allows no user and mount namespace", Err: err,
		Remedy: "run it outside of the container",
	}
	for _, limit := range []struct{ sysctl, forbids, allows, why string }{
		{"kernel/unprivileged_userns_clone", "0", "1", "only root may make user namespaces"},
		{"user/max_user_namespaces", "0", "15000", "no user namespace may be made"},
		{"user/max_mnt_namespaces", "0", "15000", "no mount namespace may be made"},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "0", "AppArmor lets only programs that it knows mount in user namespaces"},
	} {
		if setting, _ := os.ReadFile("/proc/sys/" + limit.sysctl); string(setting) == limit.forbids+"\n" {
			f.Why, f.Remedy = limit.why, fmt.Sprintf("as root: sysctl -w %s=%s", strings.ReplaceAll(limit.sysctl, "/", "."), limit.allows)
			break
		}
	}
	return f
}
