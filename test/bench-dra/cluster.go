package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// cluster is an API server and a scheduler, in a directory of their own.
type cluster struct {
	dir       string
	programs  []*program
	scheduler *program
	metrics   rest.Interface // of the scheduler
	kubernetes.Interface
}

// token is the only user's.
const token = "bench"

// start starts the programs of a control plane, and waits until the API server is ready.
func start(ctx context.Context, programs string) (c *cluster, err error) {
	dir, err := os.MkdirTemp("", "bench-dra-")
	if err != nil {
		return nil, err
	}
	c = &cluster{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	etcd, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	if _, err := c.run(ctx, programs, "etcd", "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--listen-client-urls", etcd,
		"--advertise-client-urls", etcd, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer); err != nil {
		return nil, err
	}
	if err := c.writeFiles(ports[2]); err != nil {
		return nil, err
	}
	// No controller runs, so no admission plugin may wait for its work.
	if _, err := c.run(ctx, programs, "kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", ports[2],
		"--cert-dir", filepath.Join(dir, "certs"), "--service-account-issuer", "https://bench.local",
		"--service-account-key-file", c.file("key"), "--service-account-signing-key-file", c.file("key"),
		"--service-cluster-ip-range", "198.51.100.0/24", "--token-auth-file", c.file("tokens"), "--authorization-mode", "AlwaysAllow",
		"--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition"); err != nil {
		return nil, err
	}
	if c.Interface, err = kubernetes.NewForConfig(config(ports[2])); err != nil {
		return nil, err
	}
	if err := eventually(ctx, "the API server is ready", func() error {
		return c.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return nil, err
	}
	c.scheduler, err = c.run(ctx, programs, "kube-scheduler", "--config", c.file("scheduler"), "--secure-port", ports[3],
		"--bind-address", "127.0.0.1", "--cert-dir", filepath.Join(dir, "scheduler-certs"),
		"--authorization-always-allow-paths", "/metrics,/readyz")
	if err != nil {
		return nil, err
	}
	metrics, err := kubernetes.NewForConfig(config(ports[3]))
	if err != nil {
		return nil, err
	}
	c.metrics = metrics.Discovery().RESTClient()
	return c, eventually(ctx, "the scheduler is ready", func() error { return c.metrics.Get().AbsPath("/readyz").Do(ctx).Error() })
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

// config is the configuration of a client without a limit of its own.
func config(port string) *rest.Config {
	return &rest.Config{
		Host: "https://127.0.0.1:" + port, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	}
}

// writeFiles writes what the API server and the scheduler are started with.
func (c *cluster) writeFiles(port string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	server := map[string]any{"server": "https://127.0.0.1:" + port, "insecure-skip-tls-verify": true}
	kubeconfig, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "bench",
		"clusters": []any{map[string]any{"name": "bench", "cluster": server}},
		"users":    []any{map[string]any{"name": "bench", "user": map[string]any{"token": token}}},
		"contexts": []any{map[string]any{"name": "bench", "context": map[string]any{"cluster": "bench", "user": "bench"}}},
	})
	if err != nil {
		return err
	}
	// The scheduler's own limit, 50 requests a second, would hide what it can do.
	scheduler, err := json.Marshal(map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"kubeconfig": c.file("kubeconfig"), "qps": 5000, "burst": 5000},
		"leaderElection":   map[string]any{"leaderElect": false},
	})
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"key":        pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		"tokens":     []byte(token + ",bench,bench,system:masters\n"),
		"kubeconfig": kubeconfig,
		"scheduler":  scheduler,
	} {
		if err := os.WriteFile(c.file(name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// program is one that runs; what it says is in a file.
type program struct {
	*exec.Cmd
	log string
}

func (c *cluster) run(ctx context.Context, dir, name string, args ...string) (*program, error) {
	p := &program{exec.CommandContext(ctx, filepath.Join(dir, name), args...), c.file(name + ".log")}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.Stdout, p.Stderr = log, log
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		return nil, err
	}
	c.programs = append(c.programs, p)
	return p, nil
}

// stop kills the programs, for nothing of them is kept, and removes their files.
func (c *cluster) stop() error {
	for _, p := range slices.Backward(c.programs) {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	return os.RemoveAll(c.dir)
}

// cpu is the CPU time that a program has taken, in steps of 10 ms (proc_pid_stat(5): utime and stime, in hundredths of a second).
func (p *program) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("%s has ended: %w%s", filepath.Base(p.Path), err, p.last())
	}
	// The name of the program, in brackets, may have spaces.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var ticks time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond, nil
}

// memory is the resident memory of a program in MiB (proc_pid_status(5)).
func (p *program) memory() (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kib, err := strconv.Atoi(f[1])
			return kib / 1024, err
		}
	}
	return 0, errors.New("/proc has no VmRSS")
}

// last are the last words of a program.
func (p *program) last() string {
	data, _ := os.ReadFile(p.log)
	return "\n" + string(data[max(0, len(data)-2000):])
}

// attempts are how many pods the scheduler has tried to place, those that it tried again counted again.
func (c *cluster) attempts(ctx context.Context) (int, error) {
	text, err := c.metrics.Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	sum := 0.
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "} "); ok && strings.HasPrefix(name, "scheduler_schedule_attempts_total{") {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return int(sum), lines.Err()
}

// rest waits until the scheduler has nothing to do.
func (c *cluster) rest(ctx context.Context) error {
	before, err := c.scheduler.cpu()
	if err != nil {
		return err
	}
	return eventually(ctx, "the scheduler is at rest", func() error {
		time.Sleep(400 * time.Millisecond)
		now, err := c.scheduler.cpu()
		if err != nil {
			return err
		}
		if used := now - before; used > 20*time.Millisecond {
			before = now
			return fmt.Errorf("it took %v in 400 ms", used)
		}
		return nil
	})
}

// eventually tries for a minute until something is so.
func eventually(ctx context.Context, what string, try func() error) error {
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err = try(); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("not in a minute: %s: %w", what, err)
}

// freePorts are ports that nobody listens on.
func freePorts(n int) (ports []string, err error) {
	if n == 0 {
		return nil, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close() //nolint:errcheck // open while the others are found, so that all differ
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	ports, err = freePorts(n - 1)
	return append(ports, port), err
}
