package launch

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Grace is how long a command may take to end after the signal that asks it to.
const Grace = 10 * time.Second

// supervise starts a program and stays until it ends: it passes signals on, ends the
// program after a time (0: never) or when ended says why, and stops while the program is
// stopped. The program is in this process group, so that a shell's job control reaches
// both.
func (s *Site) supervise(start func() (pid int, err error), limit time.Duration, ended <-chan string) error {
	signals := make(chan os.Signal, 64)
	passedOn := []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH}
	signal.Notify(signals, slices.DeleteFunc(passedOn, signal.Ignored)...) // nohup(1) ignores one
	defer signal.Stop(signals)
	pid, err := start()
	if err != nil {
		return err
	}
	end := make(chan unix.WaitStatus)
	go func() { end <- wait(pid) }()
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	last := unix.SIGTERM
	for {
		select {
		case status := <-end:
			if status.Signaled() {
				return Ended(exitSignal + int(status.Signal()))
			}
			return Ended(status.ExitStatus())
		case sent := <-signals:
			if !typed(sent) {
				_ = unix.Kill(pid, sent.(syscall.Signal)) // it may have ended
			}
		case <-over:
			s.Say("%v are over: %v", limit, last)
			_ = unix.Kill(pid, last)
			last, over = unix.SIGKILL, time.After(Grace)
		case why := <-ended:
			s.sayEnded(fmt.Sprintf("%s: %v", why, last))
			_ = unix.Kill(pid, last)
			last, over = unix.SIGKILL, time.After(Grace)
		}
	}
}

// typed reports whether a signal came from the terminal, which sends it to every process
// of the group in front.
func typed(s os.Signal) bool { return (s == unix.SIGINT || s == unix.SIGQUIT) && inFront() }

// inFront reports whether this process group is the one that the terminal is in the hands
// of.
func inFront() bool {
	tty, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(tty) }()
	group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// together is how long the processes of a group may take to stop or to go on one after
// the other.
const together = 50 * time.Millisecond

// wait waits for a child to end. If the child alone stops, this process stops too, so
// that the shell takes the terminal back, and both go on together. What stops the whole
// group, as ^Z does, stops this process too; when that goes on, so does the child.
func wait(pid int) (status unix.WaitStatus) {
	runtime.LockOSThread() // which stops at the signal that it sends to itself; others take a moment
	for {
		_, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || !status.Stopped():
			return status
		}
		time.Sleep(together)
		if inFront() && !goesOn(pid) {
			_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
}

// goesOn reports whether a child that was stopped has been continued, or has ended since.
func goesOn(pid int) bool {
	var info unix.Siginfo // stays empty if it has not
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WCONTINUED|unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}
