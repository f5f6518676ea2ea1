package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/dra"
	"github.com/hyperaccel/lpuctl/pkg/dra/claim"
	"github.com/hyperaccel/lpuctl/pkg/owner"
)

func isRecoverable(err error) bool { return errors.Is(err, kubeletplugin.ErrRecoverable) }

// PrepareResourceClaims gives claims their LPUs.
func (p plugin) PrepareResourceClaims(
	ctx context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		devices, err := p.prepare(ctx, c)
		result := success
		switch {
		case err == nil:
			p.Log.Info("prepared", "claim", c.Namespace+"/"+c.Name, "uid", c.UID, "devices", len(devices))
		case errors.As(err, new(*owner.Refusal)), errors.Is(err, claim.ErrRecabled), errors.Is(err, claim.ErrTaken):
			result = refused
		default:
			result = failure
		}
		if err != nil {
			p.Log.Error("a claim cannot be prepared", "claim", c.Namespace+"/"+c.Name, "uid", c.UID, "error", err)
		}
		p.prepares.Add(1, "result", result)
		results[c.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

// prepare gives one claim its LPUs. While that is recorded, the owner of the LPUs does not change.
func (d *Driver) prepare(ctx context.Context, c *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	wanted, err := d.read(c)
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	if lpus := d.members(wanted); !d.Claims.Prepared(wanted.UID) { // else its LPUs are its own, and it needs no leave
		if err := d.tolerated(c); err != nil {
			return nil, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
		}
		leave, err := d.Gate.Enter(ctx, lpus)
		if err != nil {
			return nil, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
		}
		defer leave()
	}
	prepared, err := d.Claims.Prepare(ctx, wanted)
	if err != nil {
		return nil, err
	}
	d.claimChanges.Add(1)
	d.wake()
	devices := make([]kubeletplugin.Device, len(prepared))
	for i, device := range prepared {
		devices[i] = kubeletplugin.Device{
			Requests: []string{device.Request}, PoolName: d.Name, DeviceName: device.Device, CDIDeviceIDs: device.CDI,
			Metadata: &kubeletplugin.DeviceMetadata{Attributes: d.attributes(device.Device)},
		}
	}
	return devices, nil
}

// members are the LPUs of a claim. Those of a device that is not known are left out: whoever prepares it says what is wrong.
func (d *Driver) members(c claim.Claim) (all []discovery.Address) {
	for _, r := range c.Requests {
		for _, device := range r.Devices {
			members, _ := d.Publisher.Members(device)
			all = append(all, members...)
		}
	}
	return all
}

// attributes are those of a device in its slice, and its LPUs.
func (d *Driver) attributes(name string) map[string]resourceapi.DeviceAttribute {
	all := map[string]resourceapi.DeviceAttribute{}
	for _, spec := range d.Publisher.Slices() {
		for i := range spec.Devices {
			if spec.Devices[i].Name != name {
				continue
			}
			for key, value := range spec.Devices[i].Attributes {
				all[string(key)] = value
			}
		}
	}
	return all
}

// read is what an allocated claim has of this driver's devices.
func (d *Driver) read(c *resourceapi.ResourceClaim) (claim.Claim, error) {
	wanted := claim.Claim{Namespace: c.Namespace, Name: c.Name, UID: string(c.UID)}
	if d.isScattered(c) {
		return wanted, errScattered
	}
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		switch {
		case r.Driver != dra.DriverName:
			continue
		case r.Pool != d.Name:
			return wanted, fmt.Errorf("device %s is of pool %s, and this node has only pool %s", r.Device, r.Pool, d.Name)
		case r.AdminAccess != nil && *r.AdminAccess:
			return wanted, fmt.Errorf("request %s asks for admin access, which this driver does not give: its LPUs may be in use", r.Request)
		}
		at := slices.IndexFunc(wanted.Requests, func(w claim.Request) bool { return w.Name == r.Request })
		if at < 0 {
			variables, err := variablesOf(c.Status.Allocation.Devices.Config, r.Request)
			if err != nil {
				return wanted, fmt.Errorf("request %s: %w", r.Request, err)
			}
			at = len(wanted.Requests)
			wanted.Requests = append(wanted.Requests, claim.Request{Name: r.Request, Variables: variables})
		}
		wanted.Requests[at].Devices = append(wanted.Requests[at].Devices, r.Device)
	}
	if len(wanted.Requests) == 0 {
		return wanted, fmt.Errorf("it has no device of %s", dra.DriverName)
	}
	return wanted, nil
}

// errScattered is why a claim is refused that the scheduler has made of an extended resource.
var errScattered = errors.New("the pod asked for several single LPUs as an extended resource, which need not be connected; " +
	"it came before the policy that asks for connected ones: delete the pod, so that it is made anew")

// isScattered tells whether the scheduler has made the claim for a pod that asks for several LPUs by the name of the class of one, such as
// hyperaccel.ai/lpu: 4. The admission policies turn that into one device of four, but not of a pod that was there before they were.
func (d *Driver) isScattered(c *resourceapi.ResourceClaim) bool {
	if c.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" {
		return false
	}
	single := map[string]bool{} // requests that have a single LPU
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if members, err := d.Publisher.Members(r.Device); r.Driver != dra.DriverName || err != nil || len(members) > 1 {
			continue
		}
		if single[r.Request] {
			return true
		}
		single[r.Request] = true
	}
	return false
}

// variablesOf is what the parameters of a request say. The scheduler lists those of the class before those of the claim, which override
// them; of two from one place the later one counts.
func variablesOf(configs []resourceapi.DeviceAllocationConfiguration, request string) (variables string, err error) {
	sources := []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim}
	for _, source := range sources {
		for i := range configs {
			c := &configs[i]
			if c.Source != source || c.Opaque == nil || c.Opaque.Driver != dra.DriverName || !concerns(c.Requests, request) {
				continue
			}
			parsed, err := dra.ParseConfig(c.Opaque.Parameters.Raw)
			if err != nil {
				return "", err
			}
			variables = parsed.Variables
		}
	}
	return variables, nil
}

// concerns tells whether parameters for some requests are for this one, which may be a subrequest of one of them: "big/four" of "big".
func concerns(requests []string, request string) bool {
	if len(requests) == 0 {
		return true
	}
	return slices.ContainsFunc(requests, func(r string) bool {
		return r == request || len(request) > len(r) && request[:len(r)+1] == r+"/"
	})
}

// UnprepareResourceClaims takes the LPUs of claims back.
func (p plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, c := range claims {
		err := p.Claims.Unprepare(ctx, string(c.UID))
		results[c.UID] = err
		if err != nil {
			p.unprepares.Add(1, "result", failure)
			p.Log.Error("a claim cannot be given back", "claim", c.Namespace+"/"+c.Name, "uid", c.UID, "error", err)
			continue
		}
		p.unprepares.Add(1, "result", success)
		p.Log.Info("given back", "claim", c.Namespace+"/"+c.Name, "uid", c.UID)
		p.claimChanges.Add(1)
		p.wake()
	}
	return results, nil
}
