package docker

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Ping asks the engine whether it is there.
func (c *Client) Ping(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/_ping", nil, nil, nil)
}

// labelled is the filter for what has these labels, each "key" or "key=value".
func labelled(labels []string) url.Values {
	filter, _ := json.Marshal(map[string][]string{"label": labels})
	return url.Values{"filters": {string(filter)}}
}

// An Object is a container or a network in a list. A container has Names, a network has Name.
type Object struct {
	ID     string `json:"Id"`
	Name   string
	Names  []string
	Labels map[string]string
}

// Containers lists the containers with these labels, each "key" or "key=value", also those that do not run.
func (c *Client) Containers(ctx context.Context, labels ...string) (list []Object, err error) {
	query := labelled(labels)
	query.Set("all", "1")
	return list, c.call(ctx, http.MethodGet, "/containers/json", query, nil, &list)
}

// Networks lists the networks with these labels.
func (c *Client) Networks(ctx context.Context, labels ...string) (list []Object, err error) {
	return list, c.call(ctx, http.MethodGet, "/networks", labelled(labels), nil, &list)
}

// CreateNetwork makes a bridge.
func (c *Client) CreateNetwork(ctx context.Context, name string, labels map[string]string) error {
	return c.call(ctx, http.MethodPost, "/networks/create", nil,
		map[string]any{"Name": name, "Driver": "bridge", "CheckDuplicate": true, "Labels": labels}, nil)
}

// RemoveNetwork removes a network by its name or id.
func (c *Client) RemoveNetwork(ctx context.Context, network string) error {
	return c.call(ctx, http.MethodDelete, "/networks/"+url.PathEscape(network), nil, nil, nil)
}

// HasImage reports whether the engine has the image.
func (c *Client) HasImage(ctx context.Context, image string) (bool, error) {
	err := c.call(ctx, http.MethodGet, "/images/"+image+"/json", nil, nil, nil)
	if IsAbsent(err) {
		return false, nil
	}
	return err == nil, err
}

// Pull has the engine pull an image from its registry. It gives up if there is no progress for longer than silence.
func (c *Client) Pull(ctx context.Context, image string, silence time.Duration) error {
	query := url.Values{"fromImage": {image}}
	if !strings.Contains(image[strings.LastIndex(image, "/")+1:], ":") && !strings.Contains(image, "@") {
		query.Set("tag", "latest") // no tag would mean all tags
	}
	return c.follow(ctx, silence, "/images/create", query, "", nil)
}

// buildSilence is how long a step of a build may take.
const buildSilence = 10 * time.Minute

// Build makes an image of a tar with a Dockerfile.
func (c *Client) Build(ctx context.Context, name string, tar []byte, labels map[string]string) error {
	text, err := json.Marshal(labels)
	if err != nil {
		return err
	}
	query := url.Values{"t": {name}, "labels": {string(text)}, "rm": {"1"}, "forcerm": {"1"}}
	return c.follow(ctx, buildSilence, "/build", query, "application/x-tar", bytes.NewReader(tar))
}

// A Spec describes a container that is to be made.
type Spec struct {
	Name, Image string
	Cmd, Env    []string
	Labels      map[string]string
	Network     string   // its name
	Binds       []string // host:container[:ro]
	Port        string   // of the container, such as 6379/tcp
	HostIP      string   // Port is published on this address
	HostPort    string   // and this port
}

// CreateContainer makes a container, and returns its id.
func (c *Client) CreateContainer(ctx context.Context, s Spec) (id string, err error) {
	var made struct{ ID string }
	err = c.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {s.Name}}, map[string]any{
		"Image": s.Image, "Cmd": s.Cmd, "Env": s.Env, "Labels": s.Labels, "StopSignal": "SIGTERM",
		"ExposedPorts": map[string]any{s.Port: struct{}{}},
		"HostConfig": map[string]any{
			"NetworkMode": s.Network, "Binds": s.Binds,
			"PortBindings": map[string]any{s.Port: []map[string]string{{"HostIp": s.HostIP, "HostPort": s.HostPort}}},
		},
		"NetworkingConfig": map[string]any{"EndpointsConfig": map[string]any{s.Network: struct{}{}}},
	}, &made)
	return made.ID, err
}

func (c *Client) post(ctx context.Context, container, what string, query url.Values) error {
	return c.call(ctx, http.MethodPost, "/containers/"+url.PathEscape(container)+"/"+what, query, nil, nil)
}

// Start starts a container. It is no error if it runs.
func (c *Client) Start(ctx context.Context, container string) error {
	return c.post(ctx, container, "start", nil)
}

// Pause freezes the processes of a container.
func (c *Client) Pause(ctx context.Context, container string) error {
	return c.post(ctx, container, "pause", nil)
}

// Unpause lets them go on.
func (c *Client) Unpause(ctx context.Context, container string) error {
	return c.post(ctx, container, "unpause", nil)
}

// Kill sends a signal, such as SIGTERM. See [IsNotRunning].
func (c *Client) Kill(ctx context.Context, container, signal string) error {
	return c.post(ctx, container, "kill", url.Values{"signal": {signal}})
}

// Wait returns when the container does not run.
func (c *Client) Wait(ctx context.Context, container string) error {
	return c.post(ctx, container, "wait", nil)
}

// Remove removes a container, also a running one, and its volumes.
func (c *Client) Remove(ctx context.Context, container string) error {
	query := url.Values{"force": {"1"}, "v": {"1"}}
	return c.call(ctx, http.MethodDelete, "/containers/"+url.PathEscape(container), query, nil, nil)
}

// A Container is the state of a container.
type Container struct {
	State struct {
		Running bool
		Pid     int
	}
	NetworkSettings struct {
		Networks map[string]struct{ IPAddress string }
	}
}

// Inspect asks for the state of a container.
func (c *Client) Inspect(ctx context.Context, container string) (*Container, error) {
	state := new(Container)
	return state, c.call(ctx, http.MethodGet, "/containers/"+url.PathEscape(container)+"/json", nil, nil, state)
}

// Logs returns the last lines that a container without a terminal has written.
func (c *Client) Logs(ctx context.Context, container, lines string) (string, error) {
	reply, err := c.send(ctx, http.MethodGet, "/containers/"+url.PathEscape(container)+"/logs",
		url.Values{"stdout": {"1"}, "stderr": {"1"}, "tail": {lines}}, "", nil)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	return readFrames(reply.Body)
}

// readFrames reads output that comes in frames, each with a header: the stream, three zeroes, the length.
func readFrames(from io.Reader) (string, error) {
	var text strings.Builder
	for {
		var header [8]byte
		if _, err := io.ReadFull(from, header[:]); errors.Is(err, io.EOF) {
			return text.String(), nil
		} else if err != nil {
			return text.String(), err
		}
		if _, err := io.CopyN(&text, from, int64(binary.BigEndian.Uint32(header[4:]))); err != nil {
			return text.String(), err
		}
	}
}
