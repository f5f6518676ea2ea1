package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// mix is how often each size is asked for.
type mix struct {
	name   string
	shares map[int]float64
}

func (m mix) mean() float64 {
	mean := 0.0
	for k, share := range m.shares {
		mean += float64(k) * share
	}
	return mean
}

// pod is one wish for LPUs: how long after the one before it comes, and how long it stays.
type pod struct {
	after, life float64
	size        int
}

// lives is how long pods stay, 1 on average.
type lives struct {
	name string
	draw func(r *rand.Rand) float64
}

func exponential() lives { return lives{"exponential", (*rand.Rand).ExpFloat64} }
func fixed() lives       { return lives{"all equal", func(*rand.Rand) float64 { return 1 }} }

// erlang16 varies by a quarter of its mean: the sum of 16 stages, each of exponential length.
func erlang16() lives {
	return lives{"Erlang-16", func(r *rand.Rand) float64 {
		sum := 0.0
		for range 16 {
			sum += r.ExpFloat64()
		}
		return sum / 16
	}}
}

// arrivals are pods that come at random times, so that on average they want load times as many LPUs as there are. They
// are the same for every policy, which makes differences between policies far more certain than the shares.
func arrivals(c cell, count int, seed uint64) []pod {
	r := rand.New(rand.NewPCG(seed, 1))
	rate := c.load * float64(c.n-len(c.absent)) / c.mix.mean()
	pods := make([]pod, count)
	for i := range pods {
		pods[i] = pod{r.ExpFloat64() / rate, c.lives.draw(r), c.mix.draw(r.Float64(), c.n)}
	}
	return pods
}

func (m mix) draw(x float64, n int) int {
	for k := 1; k <= n; k++ {
		if x -= m.shares[k]; x < 0 {
			return k
		}
	}
	return 1 // shares add up to 1 but for rounding
}

// outcome is what became of the pods of one run.
type outcome struct {
	asked, accepted         int // pods
	askedLPUs, acceptedLPUs int
	multi, multiAccepted    int            // pods of several LPUs
	connected               int            // of those accepted
	bySize                  map[int][2]int // accepted, connected
	fragmented              float64        // mean of 1 - longest free arc / free LPUs, as pods see it
}

func (o outcome) connectedShare() float64 {
	return float64(o.connected) / float64(max(1, o.multiAccepted))
}
func (o outcome) servedShare() float64   { return float64(o.connected) / float64(max(1, o.multi)) }
func (o outcome) acceptedShare() float64 { return float64(o.accepted) / float64(max(1, o.asked)) }
func (o outcome) acceptedLPUShare() float64 {
	return float64(o.acceptedLPUs) / float64(max(1, o.askedLPUs))
}

// departure is the end of a pod.
type departure struct {
	at   float64
	lpus set
}

// play runs pods on a server. A pod that does not fit is lost. strict: so is one for which the policy has no
// connected LPUs; otherwise, as with the kubelet, it gets what the policy names. The first tenth warms up.
func play(s *server, p policy, pods []pod, strict bool, seed uint64) outcome {
	r := rand.New(rand.NewPCG(seed, 2))
	o := outcome{bySize: map[int][2]int{}}
	free, now := s.all(), 0.0
	var running []departure
	for i, want := range pods {
		now += want.after
		running = slices.DeleteFunc(running, func(d departure) bool {
			if d.at <= now {
				free |= d.lpus
			}
			return d.at <= now
		})
		var got set
		if free.size() >= want.size {
			got = p.pick(s, free, want.size, r)
		}
		linked := got != 0 && s.connected(got)
		if strict && !linked {
			got = 0
		}
		if i >= len(pods)/10 {
			o.count(s, want, free, got, linked)
		}
		if got != 0 {
			free &^= got
			running = append(running, departure{now + want.life, got})
		}
	}
	return o
}

func (o *outcome) count(s *server, want pod, free, got set, linked bool) {
	o.asked++
	o.askedLPUs += want.size
	if free != 0 {
		o.fragmented += 1 - float64(s.longest(free))/float64(free.size())
	}
	if want.size > 1 {
		o.multi++
	}
	if got == 0 {
		return
	}
	o.accepted++
	o.acceptedLPUs += want.size
	if want.size == 1 {
		return
	}
	of := o.bySize[want.size]
	of[0]++
	o.multiAccepted++
	if linked {
		of[1]++
		o.connected++
	}
	o.bySize[want.size] = of
}

// figure is a mean over seeds with its standard error.
type figure struct{ mean, err float64 }

func summarize(values []float64) figure {
	n := float64(len(values))
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	for _, v := range values {
		squares += (v - sum/n) * (v - sum/n)
	}
	return figure{sum / n, math.Sqrt(squares / (n - 1) / n)}
}
