package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"

	"github.com/contiv-agent/contiv-agent/atomicfile"
)

// A memif interface is shared memory between VPP and a program of the pod; the kernel has no part in it. VPP listens at a socket in a folder of the
// pod, which the pod mounts. The folder has the Pod's UID as its name, because a Pod's volumes can refer to it, and no later Pod has the same one.
//
//	FOLDER/UID/eth0.sock   VPP's socket: whoever connects to it is the pod
//	FOLDER/UID/eth0.json   what the program needs: see MemifDescription
const (
	memifSuffix       = ".sock"
	descriptionSuffix = ".json"
	maxSocketPath     = 107 // of the kernel, and of VPP
)

// MemifDescription is what the program of a pod needs to use its memif interface. It lies beside the socket.
type MemifDescription struct {
	Socket     string            `json:"socket"` // name of the file in the same folder
	ID         uint32            `json:"id"`
	Role       string            `json:"role"` // of the pod: slave, so it provides the memory
	Mode       string            `json:"mode"` // ethernet
	MAC        string            `json:"mac"`  // of the pod's end
	MTU        int               `json:"mtu"`
	Addresses  []netip.Prefix    `json:"addresses"`
	Routes     []protocol.Route  `json:"routes"`
	Neighbours map[string]string `json:"neighbours"` // MAC addresses of the gateways, by IP address
}

// memifs is the folder of the folders with sockets; "": there is none.
type memifs string

// socketOf returns the path of the socket for a request; "": the pod asks for no memif interface.
func (m memifs) socketOf(r *protocol.Request, attached map[protocol.Attachment]*Attachment) (string, error) {
	if r.Interface != protocol.InterfaceMemif {
		return "", nil
	}
	path := filepath.Join(string(m), r.Pod.UID, r.IfName+memifSuffix)
	switch {
	case m == "":
		return "", protocol.Errorf(protocol.CodeInvalidConfig, "annotation %s: the agent has no folder for memif sockets", protocol.AnnotationInterface)
	case r.Pod.UID == "" || filepath.Base(r.Pod.UID) != r.Pod.UID || !filepath.IsLocal(r.Pod.UID) || r.Pod.UID == ".":
		return "", protocol.Errorf(protocol.CodeInvalidEnvironment, "CNI_ARGS: K8S_POD_UID %.64q does not name a folder, which a memif interface needs", r.Pod.UID)
	case len(path) > maxSocketPath:
		return "", protocol.Errorf(protocol.CodeInvalidConfig, "memif socket %s: its path has %d bytes, and at most %d are possible: give a shorter --cni-state", path, len(path), maxSocketPath)
	}
	for _, a := range attached {
		if a.Memif == path && a.Attachment != r.Attachment {
			return "", protocol.Errorf(protocol.CodeTryAgainLater, "memif socket %s: the pod's sandbox %s still has it", path, a.ContainerID)
		}
	}
	return path, nil
}

// memif connects a program of the pod. Its interface in VPP has the addresses, routes and neighbours of any pod's.
func (b *builder) memif(name string, p *Attachment) {
	i := &interfaces.Interface{
		Name: name, Type: interfaces.Interface_MEMIF, Enabled: true, PhysAddress: vppMAC, Mtu: uint32(p.MTU),
		Link: &interfaces.Interface_Memif{Memif: &interfaces.MemifLink{Master: true, SocketFilename: p.Memif}},
	}
	unnumbered(i)
	b.put(i)
}

// makeMemif makes the folder of an attachment's socket, with the description.
func makeMemif(a *Attachment) error {
	if a.Memif == "" {
		return nil
	}
	folder, name := filepath.Split(a.Memif)
	r := result(a)
	d := MemifDescription{
		Socket: name, Role: "slave", Mode: "ethernet", MAC: r.Interface.MAC, MTU: a.MTU, Routes: r.Routes, Neighbours: map[string]string{},
	}
	for _, ip := range r.IPs {
		d.Addresses = append(d.Addresses, ip.Address)
		d.Neighbours[ip.Gateway.String()] = vppMAC
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(filepath.Clean(folder)), 0o700) // only mounts lead past it
	}
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		err = atomicfile.Write(a.description(), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("folder of a memif socket: %w", err)
	}
	return nil
}

func (a *Attachment) description() string {
	return a.Memif[:len(a.Memif)-len(memifSuffix)] + descriptionSuffix
}

// removeMemif removes the files of an attachment that is no longer attached, and everything in their folder with the pod's last one.
func removeMemif(a *Attachment, attached map[protocol.Attachment]*Attachment) error {
	if a.Memif == "" {
		return nil
	}
	folder := filepath.Dir(a.Memif)
	for _, o := range attached {
		if o.Memif != "" && filepath.Dir(o.Memif) == folder {
			return errors.Join(removeFile(a.Memif), removeFile(a.description()))
		}
	}
	return os.RemoveAll(folder)
}

func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// restore brings the folders in line with the attachments: an Add or Delete may have been killed.
func (m memifs) restore(attached map[protocol.Attachment]*Attachment) error {
	if m == "" {
		return nil
	}
	used := map[string]bool{}
	for _, a := range attached {
		if a.Memif != "" {
			used[filepath.Dir(a.Memif)] = true
			if err := makeMemif(a); err != nil {
				return err
			}
		}
	}
	folders, err := os.ReadDir(string(m))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range folders {
		path := filepath.Join(string(m), f.Name())
		if !used[path] {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}
