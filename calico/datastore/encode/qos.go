package encode

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/contiv-agent/contiv-agent/calico/datastore"
)

const qosPrefix = "qos.projectcalico.org/"

// podQoS reads the annotations that limit and mark a pod. A limit out of bounds becomes the nearest one within; one that
// does not parse is dropped, and so is one that needs another limit that is missing. Bursts have defaults.
func podQoS(a map[string]string) *datastore.QoSControls {
	const kilo, exbi = 1000, math.MaxUint32 * 8
	q := &datastore.QoSControls{}
	for _, l := range []struct {
		to       *int64
		name     string
		min, max int64
	}{
		{&q.IngressBandwidth, "kubernetes.io/ingress-bandwidth", kilo, 1e15},
		{&q.EgressBandwidth, "kubernetes.io/egress-bandwidth", kilo, 1e15},
		{&q.IngressBandwidth, qosPrefix + "ingressBandwidth", kilo, 1e15}, // overrides the one above
		{&q.EgressBandwidth, qosPrefix + "egressBandwidth", kilo, 1e15},
		{&q.IngressBurst, qosPrefix + "ingressBurst", kilo, exbi},
		{&q.EgressBurst, qosPrefix + "egressBurst", kilo, exbi},
		{&q.IngressPeakrate, qosPrefix + "ingressPeakrate", 1010, 1.01e15},
		{&q.EgressPeakrate, qosPrefix + "egressPeakrate", 1010, 1.01e15},
		{&q.IngressMinburst, qosPrefix + "ingressMinburst", kilo, 1e8},
		{&q.EgressMinburst, qosPrefix + "egressMinburst", kilo, 1e8},
		{&q.IngressPacketRate, qosPrefix + "ingressPacketRate", 1, 10_000},
		{&q.EgressPacketRate, qosPrefix + "egressPacketRate", 1, 10_000},
		{&q.IngressPacketBurst, qosPrefix + "ingressPacketBurst", 1, 10_000},
		{&q.EgressPacketBurst, qosPrefix + "egressPacketBurst", 1, 10_000},
		{&q.IngressMaxConnections, qosPrefix + "ingressMaxConnections", 1, math.MaxUint32},
		{&q.EgressMaxConnections, qosPrefix + "egressMaxConnections", 1, math.MaxUint32},
	} {
		text, ok := a[l.name]
		if !ok {
			continue
		}
		*l.to = 0
		if n, err := resource.ParseQuantity(text); err == nil {
			*l.to = max(l.min, min(l.max, n.Value()))
		}
	}
	depend(&q.IngressBandwidth, &q.IngressBurst, &q.IngressPeakrate, &q.IngressMinburst, &q.IngressPacketRate, &q.IngressPacketBurst)
	depend(&q.EgressBandwidth, &q.EgressBurst, &q.EgressPeakrate, &q.EgressMinburst, &q.EgressPacketRate, &q.EgressPacketBurst)
	if d, ok := dscp(a); ok {
		q.DSCP = &d
	}
	if *q == (datastore.QoSControls{}) {
		return nil
	}
	return q
}

// depend drops limits without the limit that they refine, and sets the defaults of bursts (4 Gi bits, 5 packets).
func depend(bandwidth, burst, peak, minBurst, rate, packets *int64) {
	if *bandwidth == 0 {
		*burst = 0
	} else if *burst == 0 {
		*burst = 4 << 30
	}
	if *bandwidth == 0 || *bandwidth >= *peak {
		*peak = 0
	}
	if *peak == 0 {
		*minBurst = 0
	}
	if *rate == 0 {
		*packets = 0
	} else if *packets == 0 {
		*packets = 5
	}
}

// dscp reads the DSCP of packets: a number up to 63, or a name of RFC 4594.
func dscp(a map[string]string) (datastore.Word, bool) {
	text, ok := a[qosPrefix+"dscp"]
	if !ok {
		return "", false
	}
	if n, err := strconv.ParseUint(text, 10, 8); err == nil {
		return datastore.Word(text), n <= 63
	}
	known := []string{
		"DF", "EF", "AF11", "AF12", "AF13", "AF21", "AF22", "AF23", "AF31", "AF32", "AF33", "AF41", "AF42", "AF43",
		"CS0", "CS1", "CS2", "CS3", "CS4", "CS5", "CS6",
	}
	i := slices.IndexFunc(known, func(s string) bool { return strings.EqualFold(s, text) })
	if i < 0 {
		return "", false
	}
	return datastore.Word(known[i]), true
}
