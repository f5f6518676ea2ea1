package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

// A program in a container finds the vendor's library by its name only if LD_LIBRARY_PATH names the directory. A spec cannot set the
// variable, because that would replace what images set. run can ask the runtime whether an image sets it.

const libraryPath = "LD_LIBRARY_PATH"

// askTime is how long the runtime may take to tell of an image.
const askTime = 5 * time.Second

// imageEnv waits for the variables that the image of a container sets. It is not ok if they cannot be told.
type imageEnv func() (env []string, ok bool)

// askImage asks the runtime about the image, while LPUs are chosen. Which argument is the image is known if it follows {args}.
func askImage(args []string) imageEnv {
	unknown := func() ([]string, bool) { return nil, false }
	image := slices.Index(args, "{args}") + 1
	if image < 2 || image == len(args) || strings.HasPrefix(args[image], "-") ||
		!slices.Contains([]string{"podman", "docker", "nerdctl"}, filepath.Base(args[0])) ||
		slices.ContainsFunc(args[:image], func(arg string) bool { return strings.Contains(arg, libraryPath+"=") }) {
		return unknown
	}
	verb := max(1, slices.Index(args, "run")) // what stands before it are options of the runtime itself
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

// libraryOption is the option by which a container finds the libraries of what is mounted into it, if its image does not say where
// libraries are.
func (a *app) libraryOption(e *cdi.Explanation, image imageEnv) []string {
	dirs := a.libraryDirs(e.Mounts)
	if len(dirs) == 0 {
		return nil
	}
	env, ok := image()
	if !ok || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, libraryPath+"=") }) {
		return nil
	}
	return []string{"--env", libraryPath + "=" + strings.Join(dirs, ":")}
}

// libraryDirs are the directories of a container that get shared libraries by mounts: a directory that is mounted, its lib, those of the
// directories in it, or the place of a library that is mounted itself.
func (a *app) libraryDirs(mounts []cdi.Mount) (dirs []string) {
	for _, m := range mounts {
		if isLibrary(m.ContainerPath) {
			dirs = append(dirs, path.Dir(m.ContainerPath))
			continue
		}
		for _, below := range []string{"", "lib", "*/lib"} {
			found, _ := a.root.Glob(path.Join(m.HostPath, below, "*.so*")) // fails on a bad pattern only
			for _, file := range found {
				if inside, isBelow := strings.CutPrefix(file, m.HostPath); isBelow && isLibrary(file) {
					dirs = append(dirs, path.Dir(m.ContainerPath+inside))
				}
			}
		}
	}
	var once []string
	for _, dir := range dirs {
		if !slices.Contains(once, dir) {
			once = append(once, dir)
		}
	}
	return once
}

// isLibrary tells by its name whether a file is a shared library: libexample.so, libexample.so.1.
func isLibrary(file string) bool {
	name := path.Base(file)
	return strings.HasPrefix(name, "lib") && (strings.HasSuffix(name, ".so") || strings.Contains(name, ".so."))
}
