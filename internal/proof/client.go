package proof

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
)

// client is an engine that a command starts containers with: podman, docker or nerdctl.
type client struct{ program string }

func (c *client) name() string { return c.program }

// graceTime is how long a command has to end after SIGTERM.
const graceTime = 2 * time.Second

// command runs a command of the engine.
func (c *client) command(ctx context.Context, args ...string) ([]byte, error) {
	return c.start(ctx, nil, append([]string{c.program}, args...))
}

// start runs a program in a process group of its own, so that ^C ends it once, when it is
// time.
func (c *client) start(ctx context.Context, in []byte, args []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // words of our own
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = graceTime
	var out, words bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &words
	err := cmd.Run()
	if err != nil {
		err = &spokenError{err, tail(words.Bytes())}
	}
	return out.Bytes(), err
}

// ready asks the engine what containers and images of proofs there are, which shows also
// whether it answers.
func (c *client) ready(ctx context.Context, now time.Time) *obstacle {
	if _, err := exec.LookPath(c.program); err != nil {
		return &obstacle{why: "there is no program " + c.program}
	}
	names, err := c.command(ctx, "ps", "-a", "--filter", "label="+Label, "--format", "{{.Names}}")
	if err != nil {
		o := &obstacle{why: c.program + " does not answer: " + host.Reason(err).Error(), words: wordsOf(err)}
		if strings.Contains(strings.ToLower(o.words), "permission denied") && os.Geteuid() != 0 {
			o.remedy = "run it as root, or as a user who may ask it"
		}
		return o
	}
	for name := range strings.FieldsSeq(string(names)) {
		if owner, is := strings.CutPrefix(name, Prefix); is && leftBehind(owner, now) {
			_, _ = c.command(ctx, "rm", "-f", name) // the next proof tries again
		}
	}
	if c.program == podman { // it takes no image
		return nil
	}
	images, _ := c.command(ctx, "images", "--format", "{{.Repository}}:{{.Tag}}")
	for name := range strings.FieldsSeq(string(images)) {
		if owner, is := strings.CutPrefix(name, repository+":"); is && leftBehind(owner, now) {
			_, _ = c.command(ctx, "rmi", "-f", name)
		}
	}
	return nil
}

// repository is the name of the image; its tag says whose it is.
const repository = "localhost/lpuctl-proof"

func (p *Proof) image() string { return repository + ":" + p.id }

// prepare makes the root file system for podman, and the image for others.
func (c *client) prepare(ctx context.Context, p *Proof) error {
	if err := isStatic(p.Program); err != nil {
		return err
	}
	if c.program == podman {
		_, err := p.root()
		return err
	}
	file := filepath.Join(p.dir, "image.tar")
	if _, err := os.Stat(file); err != nil {
		if err := writeImage(file, p.image(), p.Program); err != nil {
			return err
		}
	}
	_, err := c.command(ctx, "load", "-i", file)
	return err
}

// run starts the container as lpuctl run does.
func (c *client) run(ctx context.Context, p *Proof, with bool) ([]byte, error) {
	args := []string{
		c.program, "run", "--rm", "-i", "--network", "none", "--name", Prefix + p.id, "--label", Label + "=" + p.id,
	}
	if c.program != podman {
		args = append(args, "--pull", "never")
	}
	if with {
		args = append(args, "{args}")
	}
	if c.program == podman {
		root, err := p.root()
		if err != nil {
			return nil, err
		}
		args = append(args, "--rootfs", root, "/"+program)
	} else {
		args = append(args, p.image())
	}
	args = append(args, "doctor", "--inside", "-")
	if with {
		var err error
		if args, err = p.Started(args); err != nil {
			return nil, err
		}
	}
	return c.start(ctx, p.promise(), args)
}

// clean removes the container, which has removed itself if it has answered, and the image.
func (c *client) clean(ctx context.Context, p *Proof, answered bool) {
	if !answered {
		_, _ = c.command(ctx, "rm", "-f", Prefix+p.id) // there may be none
	}
	if c.program != podman {
		_, _ = c.command(ctx, "rmi", "-f", p.image())
	}
}
