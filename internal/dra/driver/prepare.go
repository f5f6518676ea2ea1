package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// PrepareResourceClaims gives claims their LPUs.
func (p plugin) PrepareResourceClaims(
	ctx context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		devices, err := p.prepare(ctx, c)
		result, log := success, p.Log.With("claim", c.Namespace+"/"+c.Name, "uid", c.UID)
		switch {
		case err == nil:
			log.Info("prepared", "devices", len(devices))
		case errors.As(err, new(*owner.Refusal)), errors.Is(err, claim.ErrRecabled), errors.Is(err, claim.ErrTaken):
			result = refused
		default:
			result = failure
		}
		if err != nil {
			log.Error("a claim cannot be prepared", "error", err)
		}
		p.prepares.Add(1, "result", result)
		results[c.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

// prepare gives one claim its LPUs. While that is recorded, the owner of the LPUs does
// not change.
func (d *Driver) prepare(ctx context.Context, c *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	ofClaim := func(err error) error { return fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err) }
	wanted, err := d.read(c)
	if err != nil {
		return nil, ofClaim(err)
	}
	// If the claim is prepared its LPUs are its own, and it needs no leave.
	if lpus := d.members(wanted); !d.Claims.Prepared(wanted.UID) {
		if err := d.tolerated(c); err != nil {
			return nil, ofClaim(err)
		}
		leave, err := d.Gate.Enter(ctx, lpus)
		if err != nil {
			return nil, ofClaim(err)
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

// members are the LPUs of a claim. Those of a device that is not known are left out:
// who prepares it says what is wrong.
func (d *Driver) members(c claim.Claim) (all []pci.Address) {
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
	for device := range dra.Devices(d.Publisher.Slices()) {
		if device.Name != name {
			continue
		}
		for key, value := range device.Attributes {
			all[string(key)] = value
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
	for _, r := range c.Status.Allocation.Devices.Results {
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
			variables, err := variablesOf(resourceclaim.ConfigForResult(c.Status.Allocation.Devices.Config, r))
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

// errScattered is why a claim is refused that the scheduler has made of an extended
// resource.
var errScattered = errors.New("the pod asked for several single LPUs as an extended resource, which need not be connected; " +
	"it came before the policy that asks for connected ones: delete the pod, so that it is made anew")

// isScattered reports whether the scheduler has made the claim for a pod that asks for
// several LPUs by the name of the class of one, such as hyperaccel.ai/lpu: 4. The
// admission policies turn that into one device of four, but not of a pod that was there
// before they were.
func (d *Driver) isScattered(c *resourceapi.ResourceClaim) bool {
	if c.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" {
		return false
	}
	single := map[string]bool{} // requests that have a single LPU
	for _, r := range c.Status.Allocation.Devices.Results {
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

// variablesOf is what the parameters for a request say. The scheduler lists those of the
// class before those of the claim, which override them; of two from one place the later
// one counts.
func variablesOf(configs []resourceapi.DeviceAllocationConfiguration) (variables string, err error) {
	sources := []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim}
	for _, source := range sources {
		for _, c := range configs {
			if c.Source != source || c.Opaque.Driver != dra.DriverName {
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

// UnprepareResourceClaims takes the LPUs of claims back.
func (p plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, c := range claims {
		err := p.Claims.Unprepare(ctx, string(c.UID))
		results[c.UID] = err
		log := p.Log.With("claim", c.Namespace+"/"+c.Name, "uid", c.UID)
		if err != nil {
			p.unprepares.Add(1, "result", failure)
			log.Error("a claim cannot be given back", "error", err)
			continue
		}
		p.unprepares.Add(1, "result", success)
		log.Info("given back")
		p.claimChanges.Add(1)
		p.wake()
	}
	return results, nil
}
