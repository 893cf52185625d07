package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deployed runs programs as in their manifests: under their ServiceAccounts, with the same arguments.
type deployed struct {
	*cluster
	fanout int // port of the fan-out server
}

// become lets programs be a ServiceAccount, by a token of it.
func (d *deployed) become(account string) {
	d.t.Helper()
	d.kubeconfigOf(account, strings.TrimSpace(d.kubectl(nil, "-n", system, "create", "token", account)))
}

// program is one that runs.
type program struct {
	*process
	url string // of its health
}

// ready is an error that says why it is not.
func (p *program) ready() error {
	_, err := get(p.url + "/readyz")
	return err
}

// isReady waits until it is, and looks whether it asked for anything it may not have.
func (p *program) isReady(t testing.TB) {
	t.Helper()
	eventually(t, p.name+" is ready", p.ready, p.process)
	for _, words := range []string{"forbidden", "no right to", "going on without"} {
		if p.wrote(words) {
			t.Errorf("%s: %q", p.name, words)
			p.show(os.Stdout)
		}
	}
}

// run starts a container of a manifest, with additional arguments. The test replaces the node's parts, ports and files.
func (d *deployed) run(t testing.TB, all manifests, container string, more ...string) *program {
	t.Helper()
	for name, pod := range pods(t, all) {
		i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
		if i < 0 {
			continue
		}
		p, dir := &program{url: fmt.Sprintf("http://127.0.0.1:%d", freePort(t))}, shortDir(t)
		var args []string
		for _, arg := range pod.Spec.Containers[i].Args {
			args = append(args, d.here(t, all, &pod.Spec.Containers[i], arg, p.url))
		}
		cmd := exec.Command(built.agent, append(args, more...)...)
		cmd.Env = []string{
			"KUBECONFIG=" + d.path(pod.Spec.ServiceAccountName+".kubeconfig"), "NODE_NAME=" + nodes[0], "HOME=" + dir, "TMPDIR=" + dir,
		}
		p.process = start(t, name, cmd)
		return p
	}
	t.Fatalf("no container is called %s", container)
	return nil
}

// agent runs that of a manifest, with its embedded VPP, which connects no pods.
func (d *deployed) agent(t testing.TB, all manifests) *program {
	t.Helper()
	dir := shortDir(t)
	return d.run(t, all, "agent", "--sim", "--cni=false", "--clean-when-deleted=", "--status-socket", filepath.Join(dir, "status.sock"), "--journal", "", "--health-check-addresses", "127.0.0.1")
}

// server runs the fan-out server of a manifest.
func (d *deployed) server(t testing.TB, all manifests) *program {
	t.Helper()
	return d.run(t, all, "fanout")
}

// here is an argument as it is here: with the variables' values, with the folder of a volume below the test's, and with an address
// nobody else has.
func (d *deployed) here(t testing.TB, all manifests, ct *corev1.Container, arg, url string) string {
	t.Helper()
	for _, e := range ct.Env {
		if e.ValueFrom == nil {
			arg = strings.ReplaceAll(arg, "$("+e.Name+")", e.Value)
			continue
		}
		if e.ValueFrom.ConfigMapKeyRef == nil {
			continue
		}
		ref := e.ValueFrom.ConfigMapKeyRef
		cm, _ := find[corev1.ConfigMap](t, all, "ConfigMap", ref.Name)
		value, has := cm.Data[ref.Key]
		if !has {
			t.Fatalf("%s: no %s in ConfigMap %s", e.Name, ref.Key, ref.Name)
		}
		arg = strings.ReplaceAll(arg, "$("+e.Name+")", value)
	}
	flag, value, _ := strings.Cut(arg, "=")
	for _, m := range ct.VolumeMounts {
		if rest, under := strings.CutPrefix(value, m.MountPath+"/"); under {
			return flag + "=" + d.path(filepath.Join(filepath.Base(m.MountPath), rest))
		}
	}
	switch {
	case value == ":5473":
		return fmt.Sprintf("%s=127.0.0.1:%d", flag, d.fanout)
	case value == ":9191" || value == ":9192":
		return flag + "=" + strings.TrimPrefix(url, "http://")
	case strings.HasPrefix(value, ":"):
		return fmt.Sprintf("%s=127.0.0.1:%d", flag, freePort(t))
	}
	return arg
}

// certificates writes what the Secrets of the manifests hold: a pair for servers and one for agents, of one authority.
func (d *deployed) certificates(server string) {
	d.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		d.t.Fatal(err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	for folder, name := range map[string]string{"contiv-fanout": server, "contiv-typha": "contiv-agent"} {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			d.t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(own)
		if err != nil {
			d.t.Fatal(err)
		}
		if err := os.MkdirAll(d.path(folder), 0o700); err != nil {
			d.t.Fatal(err)
		}
		d.pem(folder+"/ca.crt", "CERTIFICATE", signed(d.t, authority, authority, &key.PublicKey, key))
		d.pem(folder+"/tls.crt", "CERTIFICATE", signed(d.t, leaf, authority, &own.PublicKey, key))
		d.pem(folder+"/tls.key", "PRIVATE KEY", private)
	}
}

func signed(t tb, c, by *x509.Certificate, of *ecdsa.PublicKey, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, by, of, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func (d *deployed) pem(name, kind string, der []byte) {
	d.t.Helper()
	d.write(name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

// endpoint makes this host an endpoint of a Service. An API server takes no EndpointSlice with an address on loopback, where all of
// this test is: it goes to etcd directly.
func (d *deployed) endpoint(namespace, service string) {
	d.t.Helper()
	port, name, tcp, ready := int32(d.fanout), "fanout", corev1.ProtocolTCP, true
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: service + "-1", UID: "0d5a6c1e-0000-4000-8000-000000000001", CreationTimestamp: metav1.Now(), Generation: 1,
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &tcp}},
	}
	value, err := json.Marshal(slice)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.store(d.t).Put(d.t.Context(), "/registry/endpointslices/"+namespace+"/"+slice.Name, string(value)); err != nil {
		d.t.Fatal(err)
	}
	eventually(d.t, "endpoint of "+service, func() error {
		_, err := d.client.DiscoveryV1().EndpointSlices(namespace).Get(d.t.Context(), slice.Name, metav1.GetOptions{})
		return err
	}, d.api)
}
