package person

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	waitLimit  = time.Second      // for an answer, with the wait for a turn
	kept       = 5 * time.Minute  // an answer, also that there is no such user
	keptFailed = 10 * time.Second // that there was no answer
	atOnce     = 16               // programs that run at once
	maxCallers = 64               // that wait for an answer about one user
	maxAnswers = 1024             // that are kept about one user
	maxLines   = 1024             // users about whom answers are kept
	outputMax  = 64 << 10         // bytes that are read of what a program says
)

// subidLine is the line of what is asked about subordinate uids. It is no name, and no
// number.
const subidLine = ":subid"

// errNoAnswer is the error that a program has not answered in time.
var errNoAnswer = errors.New("the resolver does not answer")

// isForeign reports whether subordinate uids are not those of the file. Where getsubids is
// not installed newuidmap knows no other source either: both came with shadow 4.9.
func isForeign(source string) bool {
	if source == "" {
		return false
	}
	_, err := exec.LookPath("getsubids")
	return err == nil
}

// resolver asks the system's resolver, through programs, because a library of it would be
// C's and may hang. What is asked about one user waits in a line of its own: one program
// at a time runs for it. So who comes with 65,536 uids holds up no other user.
type resolver struct {
	mu     sync.Mutex
	lines  map[string]*line
	atOnce chan struct{}
	limit  time.Duration // for an answer, with the wait for a turn
	now    func() time.Time
}

type line struct {
	callers int
	turn    chan struct{}
	answers map[string]*answer
}

type answer struct {
	done  chan struct{} // closed when there is an answer
	text  string        // "": there is no such thing
	err   error
	until time.Time // when to ask once more
}

func (a *answer) isDone() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// ask returns what a program says; "" if it says that there is no such thing, or there is
// no such program. The error is ErrBusy, errNoAnswer or that of ctx: when that has ended
// there is only what is known already.
func (r *resolver) ask(ctx context.Context, of, program string, args ...string) (string, error) {
	r.mu.Lock()
	l := r.line(of)
	if l.callers >= maxCallers {
		r.mu.Unlock()
		return "", ErrBusy
	}
	a := r.answer(ctx, l, program, args)
	if a == nil {
		r.mu.Unlock()
		return "", ctx.Err()
	}
	l.callers++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		l.callers--
	}()
	select {
	case <-a.done:
		return a.text, a.err
	case <-ctx.Done():
		if a.isDone() {
			return a.text, a.err
		}
		return "", ctx.Err()
	}
}

// line returns the line of a user. Of too many it forgets those whose answers do not count
// any more.
func (r *resolver) line(of string) *line {
	if l := r.lines[of]; l != nil {
		return l
	}
	if len(r.lines) >= maxLines {
		for name, l := range r.lines {
			if l.callers == 0 && !l.counts(r.now()) {
				delete(r.lines, name)
			}
		}
	}
	l := &line{turn: make(chan struct{}, 1), answers: map[string]*answer{}}
	r.lines[of] = l
	return l
}

func (l *line) counts(now time.Time) bool {
	for _, a := range l.answers {
		if !a.isDone() || a.until.After(now) {
			return true
		}
	}
	return false
}

// answer returns the answer to a question, which may not be there yet; nil if it is not
// known and ctx has ended.
func (r *resolver) answer(ctx context.Context, l *line, program string, args []string) *answer {
	question := strings.Join(append([]string{program}, args...), "\n")
	before := l.answers[question]
	if before != nil && (!before.isDone() || before.until.After(r.now())) {
		return before
	}
	if ctx.Err() != nil {
		return nil
	}
	if len(l.answers) >= maxAnswers {
		for other, a := range l.answers {
			if a.isDone() {
				delete(l.answers, other)
				break
			}
		}
	}
	a := &answer{done: make(chan struct{})}
	l.answers[question] = a
	go func() {
		text, err := r.run(l, program, args)
		r.mu.Lock()
		defer r.mu.Unlock()
		a.text, a.err, a.until = text, err, r.now().Add(kept)
		if err != nil {
			a.until = r.now().Add(keptFailed)
			if before != nil && before.err == nil { // it is not known to be otherwise
				a.text, a.err = before.text, nil
			}
		}
		close(a.done)
	}()
	return a
}

// run runs a program when it is its turn. One that does not end is killed; one that
// cannot be killed is left behind, and keeps its turn.
func (r *resolver) run(l *line, program string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.limit)
	defer cancel()
	for _, turn := range []chan struct{}{l.turn, r.atOnce} {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			if turn == r.atOnce {
				<-l.turn
			}
			return "", ErrBusy
		}
	}
	type result struct {
		text string
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		text, err := output(ctx, program, args)
		ended <- result{text, err}
		<-r.atOnce
		<-l.turn
	}()
	select {
	case got := <-ended:
		return got.text, got.err
	case <-ctx.Done():
		return "", fmt.Errorf("%w: %s %s", errNoAnswer, program, strings.Join(args, " "))
	}
}

// output returns what a program prints until ctx ends. A program that fails has not found
// what was asked for.
func output(ctx context.Context, program string, args []string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", nil //nolint:nilerr // without such a program the files say all
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = waitLimit // what it has started may keep its output open
	var head head
	cmd.Stdout = &head
	err = cmd.Run()
	if e, failed := errors.AsType[*exec.ExitError](err); failed && e.Exited() {
		return "", nil
	}
	return head.start.String(), err
}

// head keeps the start of what is written to it.
type head struct {
	start bytes.Buffer // not embedded: io.Copy would read into it without a limit
}

func (h *head) Write(data []byte) (int, error) {
	if room := outputMax - h.start.Len(); room > 0 {
		h.start.Write(data[:min(room, len(data))])
	}
	return len(data), nil
}
