package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// supervised is run of a shell script on a simulated node, as a child that run stays with.
func supervised(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{
		"lpuctl", "--root", simulated(t), "run", "--no-lease", "--no-isolation", "--memlock", "0", "--for", "1h", "--", "sh", "-c", script,
	}
	return cmd
}

// simulated is the root of a simulated node.
func simulated(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if code := run(t.Context(), []string{"--quiet", "simulate", root}, os.Stdout, os.Stderr, os.LookupEnv); code != 0 {
		t.Fatal(code)
	}
	return root
}

// TestSignalsArePassedOn: each signal arrives at the command, whose exit code counts, and SIGKILL of the command is 137.
func TestSignalsArePassedOn(t *testing.T) {
	names := []string{"TERM", "INT", "HUP", "QUIT", "USR1", "WINCH", "USR2"}
	cmd := supervised(t, "for s in "+strings.Join(names, " ")+`; do trap "echo $s" $s; done
trap 'echo USR2; exit 5' USR2
echo ready; while :; do sleep 0.01; done`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
	defer signal.Reset()
	// Who starts the tests may ignore these, as nohup and shells do for what runs in the background. No shell below could trap them then.
	signal.Notify(make(chan os.Signal, len(names)), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for i, want := range append([]string{"ready"}, names...) {
		if i > 0 {
			if err := unix.Kill(cmd.Process.Pid, unix.SignalNum("SIG"+want)); err != nil {
				t.Fatal(err)
			}
		}
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
		t.Error(err)
	}
}

// TestInterruptedWhileWaiting: a signal ends run at once, with the exit code that shells give it, and nothing is started.
func TestInterruptedWhileWaiting(t *testing.T) {
	root := simulated(t)
	used := root + "/proc/12/fd"
	if err := errors.Join(os.MkdirAll(used, 0o755), os.Symlink("/dev/dri/renderD134", used+"/3")); err != nil {
		t.Fatal(err)
	}
	for signal, code := range map[syscall.Signal]int{unix.SIGINT: 130, unix.SIGTERM: 143} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{"lpuctl", "--root", root, "run", "-n", "8", "--no-lease", "--wait", "--", "echo", "started"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		var out strings.Builder
		cmd.Stdout = &out
		said, err := cmd.StderrPipe()
		if err := errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(said)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "waiting: 8 LPUs asked for, 7 of 8 free: not lpu0") {
			t.Log(lines.Text())
		}
		_ = unix.Kill(cmd.Process.Pid, signal)
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != code || out.Len() > 0 {
			t.Errorf("%v: exit code %d, and it said %q", signal, got, out.String())
		}
	}
}

// terminal runs a command as the leader of a session with a new terminal, answers lines when they are shown, and returns all lines.
func terminal(t *testing.T, cmd *exec.Cmd, answers map[string]func(tty *os.File)) (shown []string) {
	t.Helper()
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	number, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = end, end, end
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(cmd.Start(), end.Close()); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(tty); lines.Scan(); { // ends with an error when nobody has the terminal open
		line := strings.Trim(lines.Text(), "\r")
		shown = append(shown, line)
		if answer := answers[line]; answer != nil {
			answer(tty)
		}
	}
	_ = cmd.Wait() // the caller looks at the exit code
	return shown
}

// TestKeyboard: ^C reaches the command once, although it is typed to both.
func TestKeyboard(t *testing.T) {
	cmd := supervised(t, `trap 'echo interrupted' INT; trap 'echo told' USR1; echo ready; until read x; do :; done; echo $x; exit 3`)
	shown := terminal(t, cmd, map[string]func(*os.File){
		"ready": func(tty *os.File) { _, _ = tty.WriteString("\x03") },
		// Signals are passed on one after the other, so a second ^C would be passed on by then.
		"^Cinterrupted": func(*os.File) { _ = unix.Kill(cmd.Process.Pid, unix.SIGUSR1) },
		"told":          func(tty *os.File) { _, _ = tty.WriteString("end\n") },
	})
	if want := []string{"ready", "^Cinterrupted", "told", "end", "end"}; !slices.Equal(shown, want) || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("%q, %v", shown, cmd.ProcessState)
	}
}

// TestJobControl: a shell sees run stop when the command stops, alone or with its whole group as ^Z does it, and both go on together.
func TestJobControl(t *testing.T) {
	for _, stop := range []string{"kill -STOP $$", "kill -TSTP 0"} {
		job := supervised(t, stop+"; echo goes on; exit 7")
		const script = `set -m; for i in 1 2 3 4 5; do "$@"; echo stopped; fg >/dev/null; echo $?; done`
		shell := exec.Command("sh", append([]string{"-c", script, "sh"}, job.Args...)...)
		var shown []string
		for _, line := range terminal(t, shell, nil) {
			if line == "stopped" || line == "goes on" || line == "7" {
				shown = append(shown, line)
			}
		}
		if want := slices.Repeat([]string{"stopped", "goes on", "7"}, 5); !slices.Equal(shown, want) {
			t.Errorf("%s: %q", stop, shown)
		}
	}
}
