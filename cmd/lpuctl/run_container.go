package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/pkg/lease"
)

// A lease lasts as long as somebody holds its connection. A container of podman holds it by conmon, which inherits it. The containers of
// docker and nerdctl are started by a daemon, which does not: their leases are bound to the id of the container. Of any other command it
// is not known what starts the container, and so it may not leave it behind.

// containerID is where a runtime writes the id of the container that it starts.
type containerID struct {
	file  string
	given bool // by the user, among the options
	dir   string
}

// lastingID tells how the lease of a container lasts as long as the container: nil, by what the command inherits; else by its id. The
// error names what a lease could not follow.
func lastingID(args []string) (*containerID, error) {
	if !startsContainer(args) {
		return nil, nil
	}
	// What stands before it are options of the runtime itself.
	verb := slices.IndexFunc(args, func(arg string) bool { return arg == "run" || arg == "create" })
	if verb > 0 && args[verb] == "create" {
		return nil, fail(exitUsage, "use run in place of create", "a container that is only created has no lease when it is started")
	}
	runtime := filepath.Base(args[0])
	if runtime == "podman" && !isRemote(args[:max(verb, 0)]) {
		return nil, nil
	}
	if runtime != "docker" && runtime != "nerdctl" {
		if option := detaches(args); option != "" {
			return nil, fail(exitUsage, "leave out "+option+", or start the container by podman, docker or nerdctl itself",
				"%s leaves the container behind, and no lease can follow it through %s", option, runtime)
		}
		return nil, nil
	}
	if i := slices.IndexFunc(args, func(arg string) bool { return arg == "--cidfile" || strings.HasPrefix(arg, "--cidfile=") }); i >= 0 {
		file, isWhole := strings.CutPrefix(args[i], "--cidfile=")
		if !isWhole && i+1 < len(args) {
			file = args[i+1]
		}
		return &containerID{file: file, given: true}, nil
	}
	if !slices.Contains(args[1:], "{args}") {
		return nil, fail(exitUsage, "write {args} in place of --device {}", "a container of %s outlives the command, and with {} alone its "+
			"id would not be known", runtime)
	}
	dir, err := os.MkdirTemp("", "lpuctl-run-")
	if err != nil {
		return nil, err
	}
	return &containerID{file: filepath.Join(dir, "id"), dir: dir}, nil
}

// isRemote tells whether podman only asks a service, which starts the container.
func isRemote(options []string) bool {
	if os.Getenv("CONTAINER_HOST") != "" {
		return true
	}
	return slices.ContainsFunc(options, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains([]string{"--remote", "-r", "--url", "--connection", "-c"}, name)
	})
}

// detaches is the option by which a container is left behind; "" if there is none. Short options may stand together: -dit.
func detaches(args []string) string {
	for _, arg := range args[1:] {
		short := len(arg) > 1 && arg[0] == '-' && arg[1] != '-'
		if arg == "--detach" || arg == "--detach=true" || short && strings.Contains(strings.SplitN(arg, "=", 2)[0], "d") {
			return arg
		}
	}
	return ""
}

// option is what tells the runtime where to write the id.
func (id *containerID) option() []string {
	if id == nil || id.given {
		return nil
	}
	return []string{"--cidfile", id.file}
}

// forget removes what was written.
func (id *containerID) forget() {
	if id != nil && id.dir != "" {
		_ = os.RemoveAll(id.dir)
	}
}

// read is the id; "" if it is not written yet.
func (id *containerID) read() string {
	text, _ := os.ReadFile(id.file)
	return strings.TrimSpace(string(text))
}

// bindEvery is how often it is tried to bind a lease: the id is written before the container runs.
const bindEvery = 100 * time.Millisecond

// bound runs a command, and binds the lease to the container that it starts as soon as that runs.
func (a *app) bound(client *lease.Client, id *containerID, run func() error) error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- keepBinding(ctx, client, id) }()
	result := run()
	cancel()
	if err := <-done; err == nil {
		return result // it was bound while the command ran
	}
	container := id.read()
	if container == "" {
		return result // no container was made
	}
	// The command has left the container behind, or has ended with it.
	if err := client.Bind(context.Background(), container); err != nil && result == ended(exitDone) {
		if _, refused := err.(*lease.Refusal); !refused {
			return fail(exitNotStarted, "stop it, if it still runs: "+container[:12], "the lease of the container is lost: %w", err)
		}
	}
	return result
}

// keepBinding tries to bind a lease to a container until it is bound, or ctx ends.
func keepBinding(ctx context.Context, client *lease.Client, id *containerID) error {
	tick := time.NewTicker(bindEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if container := id.read(); container != "" && client.Bind(ctx, container) == nil {
			return nil
		}
	}
}
