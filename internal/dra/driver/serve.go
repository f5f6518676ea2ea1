package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
)

// plugin is the driver as the kubelet's helper calls it.
type plugin struct{ *Driver }

// dataDir is where the driver's socket is, and the files from which containers learn of
// their devices.
func dataDir(kubelet string) string { return claim.DataDir(kubelet) }

// RegistryDir is where the kubelet looks for drivers.
func RegistryDir(kubelet string) string { return claim.RegistryDir(kubelet) }

// serve answers the kubelet until ctx ends. It makes its sockets again when they are gone,
// such as with the directory they were in.
func (d *Driver) serve(ctx context.Context) {
	logged := ""
	for ; ctx.Err() == nil; host.WaitBeat(ctx, time.Second) {
		helper, err := d.start(ctx)
		if err != nil {
			if err.Error() != logged {
				logged = err.Error()
				d.Log.Error("the kubelet cannot be served", "error", err)
			}
			continue
		}
		d.Log.Info("waiting for the kubelet", "registry", RegistryDir(d.KubeletDir))
		logged = ""
		d.watchSockets(ctx)
		d.registered.Store(false)
		helper.Stop()
	}
}

// start makes the sockets and has them served.
func (d *Driver) start(ctx context.Context) (*kubeletplugin.Helper, error) {
	data := dataDir(d.KubeletDir)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return nil, err
	}
	return kubeletplugin.Start(ctx, plugin{d},
		kubeletplugin.DriverName(dra.DriverName),
		kubeletplugin.KubeClient(d.Client),
		kubeletplugin.NodeName(d.Name),
		kubeletplugin.RollingUpdate(types.UID(d.PodUID)),
		kubeletplugin.RegistrarDirectoryPath(RegistryDir(d.KubeletDir)),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
		kubeletplugin.CDIDirectory(d.Claims.SpecDir),
		kubeletplugin.MetadataFileOps(d.metadataFiles()),
		kubeletplugin.GRPCInterceptor(d.noteRegistration),
	)
}

// noteRegistration sees what the kubelet says of the registration.
func (d *Driver) noteRegistration(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if status, ok := request.(*registerapi.RegistrationStatus); ok {
		d.registered.Store(status.PluginRegistered)
		if status.PluginRegistered {
			d.Log.Info("the kubelet has registered the driver")
			d.renewed.Store(true)
			d.wake()
		} else {
			d.Log.Error("the kubelet refuses the driver", "error", status.Error)
		}
	}
	return next(ctx, request)
}

// watchSockets returns when ctx ends, or a socket is gone or another's, or the helper has
// given up.
func (d *Driver) watchSockets(ctx context.Context) {
	sockets := d.sockets()
	before := make([]os.FileInfo, len(sockets))
	for i, path := range sockets {
		before[i], _ = os.Lstat(path) // one that is gone already is seen below
	}
	for ; ctx.Err() == nil; host.WaitBeat(ctx, time.Second) {
		for i, path := range sockets {
			if now, err := os.Lstat(path); err != nil || !os.SameFile(now, before[i]) {
				d.Log.Warn("a socket is gone, and is made anew", "socket", path)
				return
			}
		}
		select {
		case <-d.restarts:
			return
		default:
		}
	}
}

// sockets are those that start makes.
func (d *Driver) sockets() []string {
	registry, data := RegistryDir(d.KubeletDir), dataDir(d.KubeletDir)
	if d.PodUID == "" {
		return []string{filepath.Join(registry, dra.DriverName+"-reg.sock"), filepath.Join(data, "dra.sock")}
	}
	name := kubeletplugin.RollingUpdateRegistrarSocketFile(registry, dra.DriverName, types.UID(d.PodUID))
	return []string{filepath.Join(registry, name), filepath.Join(data, "dra-"+d.PodUID+".sock")}
}

// HandleError handles what went wrong behind the kubelet's calls.
func (p plugin) HandleError(_ context.Context, err error, what string) {
	p.Log.Error("serving the kubelet", "error", fmt.Errorf("%s: %w", what, err))
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		select {
		case p.restarts <- struct{}{}:
		default:
		}
	}
}
