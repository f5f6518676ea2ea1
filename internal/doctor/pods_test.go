package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/pods"
	"github.com/hyperaccel/lpuctl/internal/statefile"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// lister is a kubelet that lists devices.
type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	ids []string
}

func (l *lister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{}, nil
}

func (l *lister) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: "hyperaccel.ai/lpu", DeviceIds: l.ids}, {ResourceName: "example.com/other", DeviceIds: []string{"x"}},
	}}, nil
}

// lists has a kubelet list devices.
func lists(t *testing.T, root host.Root, ids ...string) {
	t.Helper()
	l := listen(t, root, "/var/lib/kubelet/pod-resources/kubelet.sock")
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, &lister{ids: ids})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
}

// handing is who hands out LPUs on a machine.
func handing(root host.Root, now owner.Standing, change ...func(*discovery.LPU)) Pods {
	of := &pods.Node{
		Root: root, StateDir: filepath.Join(string(root), "/var/lib/lpuctl"), SpecDir: filepath.Join(string(root), "/run/cdi"),
		PluginDir: filepath.Join(string(root), plugins),
	}
	return Pods{
		Root: root, Scan: one(change...), Node: func() (*pods.Node, error) { return of, nil },
		Stand: func() (owner.File, owner.Standing, error) { return of.Owner(), now, nil },
	}
}

func running(o owner.Owner) owner.Standing {
	return owner.Standing{Record: owner.Record{Owner: o}, Running: map[owner.Owner]bool{o: true}}
}

// TestRegistration: a plugin that the kubelet does not know is found, also the kubelet that is not there.
func TestRegistration(t *testing.T) {
	check := func(root host.Root, now owner.Standing, change ...func(*discovery.LPU)) Check {
		return Registration(handing(root, now, change...))
	}
	wants(t, "neither", check(tree(t, nil), owner.Standing{}), Absent, "no kubelet")
	kubelet := map[string]string{"/proc/5/comm": "kubelet\n", "/proc/5/cmdline": "kubelet\x00", "/var/lib/kubelet/config.yaml": "kind: K\n"}
	stopped := tree(t, map[string]string{"/var/lib/kubelet/config.yaml": "kind: K\n"})
	wants(t, "it is set up", check(stopped, owner.Standing{}), Absent, "the kubelet does not run")
	put(t, stopped, enabled("kubelet.service"))
	wants(t, "it is enabled", check(stopped, owner.Standing{}), Warned, "kubelet-away", "systemctl start kubelet")
	wants(t, "a plugin without a kubelet", check(tree(t, nil), running(owner.Plugin)), Warned, "kubelet-away", "the device plugin runs")

	root := tree(t, kubelet)
	wants(t, "no socket", check(root, running(owner.Plugin)), Unknown, "serve.podResources")
	left := listen(t, root, "/var/lib/kubelet/pod-resources/kubelet.sock")
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = left.Close()
	wants(t, "it does not answer", check(root, running(owner.Plugin)), Warned, "kubelet-away", "does not answer")
	if err := os.Remove(left.Addr().String()); err != nil {
		t.Fatal(err)
	}
	lists(t, root)
	wants(t, "no plugin", check(root, owner.Standing{}), Well, "the kubelet runs")
	wants(t, "not registered", check(root, running(owner.Plugin)), Broken, "plugin-unregistered", "there is no kubelet.sock in")
	listen(t, root, plugins+"/kubelet.sock")
	wants(t, "no socket of ours", check(root, running(owner.Plugin)), Broken, "the plugin has no socket in")
	own := listen(t, root, plugins+"/lpuctl-a.sock").Addr().String()
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(own, before, before); err != nil {
		t.Fatal(err)
	}
	wants(t, "the kubelet was restarted", check(root, running(owner.Plugin)), Broken, "has not registered since the kubelet was started")
	wants(t, "a cordoned LPU", check(root, running(owner.Plugin), func(l *discovery.LPU) { l.Cordoned = &health.Cordon{} }), Well, "0 of 0")
	both := running(owner.DRA)
	both.Running[owner.Plugin] = true
	wants(t, "the driver is the owner", check(root, both), Well)
	hidden := owner.Standing{Unknown: map[owner.Owner]error{owner.Plugin: fs.ErrPermission}}
	wants(t, "a user who sees no plugin", check(root, hidden), Unknown, "whether the device plugin runs", "run it as root")

	root = tree(t, kubelet)
	lists(t, root, "pci-0000-43-00.1")
	wants(t, "registered", check(root, running(owner.Plugin)), Well, "lists 1 of 1")
}

// TestKubeletThatMayNotBeAsked: who may not ask the kubelet is said, and it is not taken for away.
func TestKubeletThatMayNotBeAsked(t *testing.T) {
	var r Result
	r.untold(errors.New("dial unix /var/lib/kubelet/pod-resources/kubelet.sock: connect: permission denied"), false, true)
	if len(r.Findings) > 0 || len(r.Unseen) != 1 || r.Unseen[0].Right != "run it as root" {
		t.Errorf("%+v", r)
	}
}

// TestDriving: the driver's sockets are looked for where the kubelet does, and prepared claims have their files.
func TestDriving(t *testing.T) {
	check := func(root host.Root, now owner.Standing) Check { return Driving(handing(root, now)) }
	root := tree(t, nil)
	wants(t, "no driver", check(root, running(owner.Plugin)), Absent, "does not run")
	wants(t, "no sockets", check(root, running(owner.DRA)), Broken, "dra-unregistered",
		"plugins_registry/lpu.hyperaccel.ai*-reg.sock", "dra*.sock")
	registry, data := claim.RegistryDir("/var/lib/kubelet"), claim.DataDir("/var/lib/kubelet")
	left := listen(t, root, data+"/dra.sock")
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = left.Close()
	listen(t, root, registry+"/"+claim.DriverName+"-reg.sock")
	wants(t, "a socket that is left", check(root, running(owner.DRA)), Broken, "no program listens at")
	listen(t, root, data+"/dra-1234.sock")
	wants(t, "both", check(root, running(owner.DRA)), Well, "the DRA driver runs")
	hidden := owner.Standing{Unknown: map[owner.Owner]error{owner.DRA: fs.ErrPermission}}
	wants(t, "a user who does not see it", check(root, hidden), Unknown, "whether the DRA driver runs", "run it as root")

	const uid = "0f7c4d2e-3b1a-4c5d-8e9f-001122334455"
	record := claim.Record{
		Header: statefile.NewHeader("DRAClaim"), Version: 1, Boot: host.Now().Boot, State: "completed", Namespace: "default", Name: "a", UID: uid,
		Requests: []claim.RecordRequest{{Name: "r", Devices: []claim.RecordDevice{{Name: "d", Members: []pci.Address{{Device: 4}}}}}},
	}
	stored := filepath.Join(string(root), "/var/lib/lpuctl", claim.DirName, uid+".json")
	if err := os.MkdirAll(filepath.Dir(stored), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (statefile.File[claim.Record]{Path: stored, Kind: "DRAClaim"}).Write(&record); err != nil {
		t.Fatal(err)
	}
	wants(t, "a claim without its file", check(root, running(owner.DRA)), Broken, "claim-file", "default/a")
	file := cdi.ClaimFile("/run/cdi", uid)
	put(t, root, map[string]string{file: "{}"})
	wants(t, "a claim", check(root, running(owner.DRA)), Well, "prepared claims: 1")
	if err := os.WriteFile(stored, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	wants(t, "a record that cannot be used", check(root, running(owner.DRA)), Warned, "claim-record")
}

// TestLeasing: who listens is seen without a connection, which would start the arbiter.
func TestLeasing(t *testing.T) {
	check := func(root host.Root, may error, change ...func(*discovery.LPU)) Check {
		return Leasing(LeaseService{
			Root: root, StateDir: filepath.Join(string(root), "/var/lib/lpuctl"), Scan: one(change...),
			MayConnect: func(string) error { return may },
		})
	}
	root := tree(t, nil)
	wants(t, "not set up", check(root, nil), Absent, "leases are not set up")
	put(t, root, enabled(leaseSocket))
	wants(t, "no socket", check(root, nil), Broken, "lease-unreachable", "its socket is not there", "systemctl restart lpuctl-lease.socket")
	listener := listen(t, root, lease.Socket)
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := listener.Accept(); err == nil {
			accepted <- c
		}
	}()
	wants(t, "a machine whose sockets cannot be seen", check(root, nil), Unknown, "whether the arbiter can be reached")
	put(t, root, map[string]string{"/proc/1/net/unix": listed("/run/other.sock")})
	wants(t, "no program listens", check(root, nil), Broken, "no program listens at /run/lpuctl/lease.sock")
	put(t, root, map[string]string{"/proc/1/net/unix": listed(lease.Socket)})
	wants(t, "systemd listens", check(root, nil), Well, "systemd listens")
	select {
	case <-accepted:
		t.Error("it has connected, which starts the arbiter")
	default:
	}
	wants(t, "who is not in the group", check(root, fs.ErrPermission), Unknown, "what the arbiter says to this user", "usermod -aG lpu USER")
	wants(t, "an LPU that is kept back", check(root, nil, func(l *discovery.LPU) {
		l.Reasons.Add(finding.LeaseHookFailed, "lpu0", "leases.hook has failed on it: exit status 1", "")
	}), Warned, "lease-hook-failed")
	put(t, root, map[string]string{"/var/lib/lpuctl/leases.json": "{"})
	wants(t, "a record that cannot be used", check(root, nil), Warned, "lease-records", "systemctl restart lpuctl-lease.service")
}
