package driver

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
)

// collectInterval is how often prepared claims are compared with those of the API server.
const collectInterval = time.Minute

// collect gives back what the kubelet has not given back: prepared claims that the API
// server does not have any more, and no pod.
func (d *Driver) collect(ctx context.Context) {
	defer d.pulses.collect.Rest()
	for ; ctx.Err() == nil; host.WaitBeat(ctx, collectInterval) {
		d.pulses.collect.Beat(time.Now())
		claims, err := d.Claims.Claims()
		if err != nil {
			continue // who reads them for other reasons says so
		}
		for _, c := range claims {
			d.collectOne(ctx, c)
		}
	}
}

// collectOne gives one claim back if it is deleted and no pod has it.
func (d *Driver) collectOne(ctx context.Context, c *claim.Record) {
	// What the API server has in its cache may be old.
	if !d.isGone(ctx, c, "0") || !d.isGone(ctx, c, "") {
		return
	}
	if used, err := d.usedByPod(ctx, c); used || err != nil {
		d.Log.Warn("a claim is deleted, and a pod may still have its LPUs", "claim", c.String(), "error", err)
		return
	}
	err := d.forgetMetadata(c)
	if err == nil {
		err = d.Claims.Unprepare(ctx, c.UID)
	}
	if err != nil {
		d.Log.Error("a claim that is deleted cannot be given back", "claim", c.String(), "error", err)
		return
	}
	d.Log.Warn("gave back a claim that is deleted", "claim", c.String())
	d.claimChanges.Add(1)
	d.wake()
}

// isGone reports whether the API server says that it does not have the claim, or has
// another one of its name.
func (d *Driver) isGone(ctx context.Context, c *claim.Record, version string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	have, err := d.Client.ResourceV1().ResourceClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{ResourceVersion: version})
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return string(have.UID) != c.UID
}

// usedByPod reports whether the kubelet knows a pod that has the claim.
func (d *Driver) usedByPod(ctx context.Context, c *claim.Record) (bool, error) {
	if d.InUse == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	used, err := d.InUse(ctx)
	return slices.ContainsFunc(used, func(u cdi.Claim) bool { return u.UID == c.UID }), err
}
