package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/isolate"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// TestLeaseIsHandedOver: a command inherits the lease with a high number, and run itself keeps nothing of it.
func TestLeaseIsHandedOver(t *testing.T) {
	lease, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := handOver(lease); err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("run still has it: %v", err)
	}
	var kept unix.Stat_t
	if err := unix.Fstat(int(end.Fd()), &kept); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("ls -i -L /proc/self/fd | grep -w %d", kept.Ino)
	end.Close()
	out, err := exec.Command("sh", "-c", script).Output()
	number := -1
	if fields := strings.Fields(string(out)); len(fields) == 2 {
		number, _ = strconv.Atoi(fields[1])
	}
	if err != nil || number < leaseDescriptor {
		t.Errorf("%q, %v", out, err)
	}
	_ = unix.Close(number) // so that no other test's command inherits it
}

// TestCode: the exit codes are those of shells, env and nohup.
func TestCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
	}{
		{nil, 0}, {Ended(7), 7}, {fmt.Errorf("x: %w", Ended(137)), 137}, {refuse("", "no"), 125}, {errors.New("no"), 125},
		{&isolate.ExecError{Path: "x", Err: exec.ErrNotFound}, 127}, {&isolate.ExecError{Path: "x", Err: os.ErrPermission}, 126},
	} {
		if code := Code(test.err); code != test.code {
			t.Errorf("%v: %d, not %d", test.err, code, test.code)
		}
	}
}

// TestWhoseLease: it is known of each command whether its container inherits the lease.
func TestWhoseLease(t *testing.T) {
	for line, want := range map[string]string{
		"./benchmark -d":                                    "false",
		"podman run --rm {args} x":                          "false",
		"podman run {args} -it --name n --rm x":             "false",
		"podman run --device {} --rm=true x":                "false",
		"podman run {args} x":                               "without --rm",
		"podman run --rm=false {args} x":                    "without --rm",
		"podman run {args} --name n x sh --rm":              "without --rm",
		"podman run --rm --pod p {args} x":                  "of a pod",
		"podman run --rm --pod-id-file=p {args} x":          "of a pod",
		"podman run -d --restart=always {args} x":           "--restart starts the container again",
		"podman run --rm {args} --restart on-failure x":     "--restart starts the container again",
		"podman run --rm --restart no {args} x":             "false",
		"podman run --rm {args} x tool --restart now --pod": "false",
		"docker run --restart=always {args} x":              "--restart starts the container again",
		"podman --remote run --rm -d {args} x":              "no lease can follow it through podman",
		"docker run -d {args} x":                            "true",
		"nerdctl --namespace k8s.io run {args} x":           "true",
		"docker create {args} x":                            "only created",
		"wrapper run -dit {args} x":                         "wrapper",
		"wrapper run {args} x":                              "false",
		"1m podman run --rm -d {args} x":                    "true",
		"1m podman run --rm {args} x":                       "true",
		"1m podman run --rm -d --device {} x":               "true",
		"1m podman run --rm --device {} x tool -d":          "false", // this process ends it
		"1m podman --remote run --rm {args} x":              "false",
	} {
		j := &Job{Args: strings.Fields(line), Site: Site{Env: func(string) (string, bool) { return "", false }}}
		if j.Args[0] == "1m" {
			j.Args, j.Limit = j.Args[1:], time.Minute
		}
		byID, err := j.needsID()
		if got := fmt.Sprint(byID, err); !strings.Contains(got, want) {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// TestLibraryDirs: the directories of libraries in what is mounted are found, and no others.
func TestLibraryDirs(t *testing.T) {
	root := t.TempDir()
	plant.File(t, filepath.Join(root, "opt/vendor/lib/liblpu.so.1"), "")
	plant.File(t, filepath.Join(root, "opt/vendor/bin/tool"), "")
	mounts := []cdi.Mount{{HostPath: "/opt/vendor", ContainerPath: "/vendor"}, {HostPath: "/x", ContainerPath: "/usr/lib/libx.so"}}
	got := libraryDirs(host.Root(root), mounts)
	if want := []string{"/vendor/lib", "/usr/lib"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}
