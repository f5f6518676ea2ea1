package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

// startsContainer reports whether a container gets the LPUs, and not the command itself.
func (j *Job) startsContainer() bool {
	return slices.Contains(j.Args[1:], "{args}") || slices.Contains(j.Args[1:], "{}")
}

// startedByDaemon reports whether a container is one that a daemon starts, and so has
// that daemon's limits.
func (j *Job) startedByDaemon() bool {
	return slices.Contains([]string{"docker", "nerdctl"}, filepath.Base(j.Args[0]))
}

// containerOptions are what {args} stands for: the options by which a container gets the
// LPUs and can use them.
func (j *Job) containerOptions(g *grant, held *heldLease, image imageEnv, e *cdi.Explanation) []string {
	options := slices.Concat(j.Arguments(e), libraryOption(j.Root, e, image), held.options(), j.memlockOption())
	if needsKeepGroups(j.Root, g, j.Args) {
		options = append(options, "--group-add", "keep-groups")
	}
	return options
}

// needsKeepGroups reports whether a container of this user's own podman can open the
// nodes only as one of the user's groups. Such a container has no group of the user,
// unless the runtime is crun and gets the option to keep them. Other runtimes ignore the
// option.
func needsKeepGroups(root host.Root, g *grant, args []string) bool {
	if os.Geteuid() == 0 || filepath.Base(args[0]) != "podman" || slices.ContainsFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "--group-add")
	}) {
		return false
	}
	for _, l := range g.inv.LPUs {
		for _, n := range l.Nodes {
			const everybody = 0o006
			var st unix.Stat_t
			path, err := root.Resolve(n.Path)
			if err == nil && slices.Contains(g.lpus, l.Name) && unix.Stat(path, &st) == nil && st.Mode&everybody != everybody &&
				int(st.Uid) != os.Geteuid() {
				return true
			}
		}
	}
	return false
}

// A program in a container finds the vendor's library by its name only if LD_LIBRARY_PATH
// names the directory. A spec cannot set the variable, because that would replace what
// images set. run can ask the runtime whether an image sets it.

const libraryPath = "LD_LIBRARY_PATH"

// askTime is how long the runtime may take to tell of an image.
const askTime = 5 * time.Second

// imageEnv waits for the variables that the image of a container sets. ok is false if
// they cannot be known.
type imageEnv func() (env []string, ok bool)

// askImage asks the runtime about the image, while LPUs are chosen. Which argument is the
// image is known if it follows {args}.
func askImage(args []string) imageEnv {
	unknown := func() ([]string, bool) { return nil, false }
	image := slices.Index(args, "{args}") + 1
	if image < 2 || image == len(args) || strings.HasPrefix(args[image], "-") ||
		!slices.Contains([]string{"podman", "docker", "nerdctl"}, filepath.Base(args[0])) ||
		slices.ContainsFunc(args[:image], func(arg string) bool { return strings.Contains(arg, libraryPath+"=") }) {
		return unknown
	}
	// What stands before "run" are options of the runtime itself.
	verb := max(1, slices.Index(args, "run"))
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	cmd := exec.CommandContext(ctx, args[0],
		slices.Concat(args[1:verb], []string{"image", "inspect", "--format", "{{json .Config.Env}}", args[image]})...)
	var out bytes.Buffer
	cmd.Stdout = &out
	if cmd.Start() != nil {
		cancel()
		return unknown
	}
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- cmd.Wait()
	}()
	return func() (env []string, ok bool) {
		err := <-ended
		return env, err == nil && json.Unmarshal(out.Bytes(), &env) == nil
	}
}

// libraryOption is the option by which a container finds the libraries of what is mounted
// into it, if its image does not say where libraries are.
func libraryOption(root host.Root, e *cdi.Explanation, image imageEnv) []string {
	dirs := libraryDirs(root, e.Mounts)
	if len(dirs) == 0 {
		return nil
	}
	env, ok := image()
	if !ok || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, libraryPath+"=") }) {
		return nil
	}
	return []string{"--env", libraryPath + "=" + strings.Join(dirs, ":")}
}

// libraryDirs are the directories of a container that get shared libraries by mounts: a
// directory that is mounted, its lib, those of the directories in it, or the place of a
// library that is mounted itself.
func libraryDirs(root host.Root, mounts []cdi.Mount) (dirs []string) {
	add := func(library string) {
		if dir := path.Dir(library); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, m := range mounts {
		if isLibrary(m.ContainerPath) {
			add(m.ContainerPath)
			continue
		}
		for _, below := range []string{"", "lib", "*/lib"} {
			found, _ := root.Glob(path.Join(m.HostPath, below, "*.so*")) // fails on a bad pattern only
			for _, file := range found {
				if inside, isBelow := strings.CutPrefix(file, m.HostPath); isBelow && isLibrary(file) {
					add(m.ContainerPath + inside)
				}
			}
		}
	}
	return dirs
}

// isLibrary tells by its name whether a file is a shared library: libexample.so,
// libexample.so.1.
func isLibrary(file string) bool {
	name := path.Base(file)
	return strings.HasPrefix(name, "lib") && (strings.HasSuffix(name, ".so") || strings.Contains(name, ".so."))
}
