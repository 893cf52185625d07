package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusedPorts returns a Service with a port that nat44 does not translate; it creates the Service if needed.
func (d *deployed) refusedPorts(t *testing.T) *corev1.Service {
	t.Helper()
	services := d.client.CoreV1().Services(system)
	svc, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "phones"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "phone"}, Ports: []corev1.ServicePort{
			{Name: "sip", Port: 5060, Protocol: corev1.ProtocolTCP}, {Name: "media", Port: 5004, Protocol: corev1.ProtocolSCTP},
		}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		svc, err = services.Get(t.Context(), "phones", metav1.GetOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

// toldOf are the Events of a Service.
func (d *deployed) toldOf(ctx context.Context, svc *corev1.Service) ([]eventsv1.Event, error) {
	list, err := d.client.EventsV1().Events(svc.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID != svc.UID || e.ReportingController != ours }), nil
}

// reportsService waits until an agent behind a fan-out server has reported on a Service as kubectl describe searches for it,
// and has its Lease.
func (d *deployed) reportsService(t *testing.T, p *program, svc *corev1.Service) {
	t.Helper()
	eventually(t, "Event and Lease of an agent behind a fan-out server", func() error {
		all, err := d.toldOf(t.Context(), svc)
		if err != nil {
			return err
		}
		if len(all) != 1 || all[0].Reason != "NotSupported" {
			return fmt.Errorf("Events: %+v", all)
		}
		l, err := d.client.CoordinationV1().Leases(system).Get(t.Context(), nodes[0], metav1.GetOptions{})
		if err == nil && (l.Annotations["contiv-agent.io/ready"] != "true" || l.Spec.AcquireTime == nil || !l.Spec.RenewTime.After(l.Spec.AcquireTime.Time)) {
			err = fmt.Errorf("Lease: %+v", l)
		}
		return err
	}, p.process)
	if p.wrote("not reported") {
		t.Errorf("a right is missing:\n%s", p.tail())
	}
}

// forgotten makes the Event of a Service an old one, and removes the Lease's renewal.
func (d *deployed) forgotten(t *testing.T, svc *corev1.Service) {
	t.Helper()
	all, err := d.toldOf(t.Context(), svc)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v %+v", err, all)
	}
	e, events := all[0], d.client.EventsV1().Events(svc.Namespace)
	if err := events.Delete(t.Context(), e.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.ResourceVersion, e.UID, e.EventTime, e.Series = "", "", metav1.NewMicroTime(time.Now().Add(-time.Hour)), nil
	if _, err := events.Create(t.Context(), &e, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = d.client.CoordinationV1().Leases(system).Delete(t.Context(), nodes[0], metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// reports shows that an agent behind a fan-out server has the rights to report, and needs each of them: without one it
// continues.
func (d *deployed) reports(t *testing.T, run func(testing.TB) *program) {
	svc := d.refusedPorts(t)
	t.Run("enough", func(t *testing.T) { d.reportsService(t, run(t), svc) })
	for _, r := range slices.Concat(d.rights(t, "", "contiv-events"), d.rights(t, system, "contiv-lease")) {
		t.Run("without "+r.String(), func(t *testing.T) {
			d.forgotten(t, svc)
			was := d.rules(t, r.namespace, r.role)
			d.changeRole(t, r.namespace, r.role, func(is []rbacv1.PolicyRule) []rbacv1.PolicyRule { return without(is, r) })
			t.Cleanup(func() {
				d.changeRole(t, r.namespace, r.role, func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return was })
			})
			d.may(t, ours, r, false)
			p := run(t)
			words := fmt.Sprintf(`cannot %s resource \"%s\"`, r.verb, r.resource)
			eventually(t, p.name+" shows that it may not "+r.String(), func() error {
				if !p.wrote("not reported") || !p.wrote(words) {
					return errors.New(p.tail())
				}
				return p.ready()
			}, p.process)
		})
		d.may(t, ours, r, true)
	}
}
