package dockerfleet

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ory/dockertest/v3/docker"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/server"
)

// DefaultImage is the image of a docker fleet if Options.Image is empty.
//
// An image that is neither present nor can be pulled is replaced by one that is built from this machine's redis-server,
// whatever its version; the log says so. The replacement is stored as redlock-fleet:<hash of its content> and shared by
// all runs. If it already exists and no image was requested by name, it is used without trying to pull DefaultImage.
const DefaultImage = "redis:7"

const (
	builtRepository = "redlock-fleet"
	pullTimeout     = 2 * time.Minute
	pullSilence     = 30 * time.Second // a pull without progress for this long is aborted
)

// unpullable has the images that could not be pulled, so that a process tries only once.
var unpullable sync.Map

// provideImage returns the name of an image that is present.
func provideImage(ctx context.Context, client *docker.Client, asked string, logf fleet.Logf) (string, error) {
	image := asked
	if image == "" {
		image = DefaultImage
	}
	if _, err := client.InspectImage(image); err == nil {
		return image, nil
	} else if !errors.Is(err, docker.ErrNoSuchImage) {
		return "", fmt.Errorf("image %s: %w", image, err)
	}
	own, ownErr := describeImage()
	if ownErr == nil && asked == "" {
		if _, err := client.InspectImage(own.name); err == nil {
			return own.name, nil
		}
	}
	pullErr := pull(ctx, client, image, logf)
	if pullErr == nil {
		return image, nil
	}
	pullErr = fmt.Errorf("image %s is not present and cannot be pulled: %w", image, pullErr)
	if ownErr == nil {
		logf("fleet: %v; instead %s is built from this machine's %s", pullErr, own.name, own.server)
		ownErr = own.build(ctx, client)
	}
	if ownErr != nil {
		return "", errors.Join(pullErr, fmt.Errorf("and no image can be built from this machine's redis-server: %w", ownErr))
	}
	return own.name, nil
}

func pull(ctx context.Context, client *docker.Client, image string, logf fleet.Logf) error {
	if before, ok := unpullable.Load(image); ok {
		return before.(error)
	}
	logf("fleet: pull %s", image)
	bounded, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	repository, tag := docker.ParseRepositoryTag(image)
	if tag == "" {
		tag = "latest" // no tag would mean all tags
	}
	err := client.PullImage(docker.PullImageOptions{
		Repository: repository, Tag: tag, Context: bounded, OutputStream: io.Discard, InactivityTimeout: pullSilence,
	}, docker.AuthConfiguration{})
	if err == nil {
		_, err = client.InspectImage(image) // a failed pull may return success
	}
	if err != nil && ctx.Err() == nil {
		unpullable.Store(image, err)
	}
	return err
}

// An ownImage is everything that is needed to build an image with this machine's redis-server.
type ownImage struct {
	name    string
	server  string
	context []byte // a tar
}

const dockerfile = `FROM scratch
COPY rootfs /
ENV PATH=/usr/local/bin:/usr/bin:/bin
WORKDIR /data
EXPOSE 6379
CMD ["redis-server"]
`

// describeImage collects the files. Its result depends only on their content.
func describeImage() (*ownImage, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("it is a %s binary, and a container needs a Linux binary", runtime.GOOS)
	}
	program, err := server.OnPath()
	if err != nil {
		return nil, err
	}
	programs := []string{program}
	if cli, err := exec.LookPath("redis-cli"); err == nil {
		programs = append(programs, cli)
	}
	libraries, err := closure(programs)
	if err != nil {
		return nil, err
	}
	var context bytes.Buffer
	if err := writeContext(&context, programs, libraries); err != nil {
		return nil, err
	}
	return &ownImage{
		name:    fmt.Sprintf("%s:%.6x", builtRepository, sha256.Sum256(context.Bytes())),
		server:  program,
		context: context.Bytes(),
	}, nil
}

var lddPath = regexp.MustCompile(`(?m)(?:=>|^)\s+(/\S+) \(0x`)

// closure returns the libraries that the programs need according to ldd, sorted and without duplicates.
func closure(programs []string) ([]string, error) {
	var files []string
	for _, program := range programs {
		output, err := exec.Command("ldd", program).CombinedOutput()
		if err != nil && !bytes.Contains(output, []byte("not a dynamic executable")) {
			return nil, fmt.Errorf("ldd %s: %w: %s", program, err, bytes.TrimSpace(output))
		}
		for _, found := range lddPath.FindAllSubmatch(output, -1) {
			files = append(files, string(found[1]))
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// writeContext writes the build context: the Dockerfile, and in rootfs the programs in /usr/local/bin and the libraries
// at their paths on this machine, with links resolved.
func writeContext(w io.Writer, programs, libraries []string) error {
	out := tar.NewWriter(w)
	put := func(name string, mode int64, content []byte) error {
		header := &tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if content == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		_, err := out.Write(content)
		return err
	}
	err := errors.Join(
		put("Dockerfile", 0o644, []byte(dockerfile)),
		put("rootfs/data/", 0o777, nil),
		put("rootfs/tmp/", 0o1777, nil),
		put("rootfs/etc/passwd", 0o644, []byte("root:x:0:0:root:/:/bin/false\nredis:x:999:999:redis:/data:/bin/false\n")),
		put("rootfs/etc/group", 0o644, []byte("root:x:0:\nredis:x:999:\n")),
	)
	copyIn := func(file, to string) {
		if err != nil {
			return
		}
		var content []byte
		if content, err = os.ReadFile(file); err == nil {
			err = put("rootfs"+to, 0o755, content)
		}
	}
	for _, program := range programs {
		copyIn(program, "/usr/local/bin/"+filepath.Base(program))
	}
	for _, library := range libraries {
		copyIn(library, library)
	}
	return errors.Join(err, out.Close())
}

func (i *ownImage) build(ctx context.Context, client *docker.Client) error {
	var output bytes.Buffer
	err := client.BuildImage(docker.BuildImageOptions{
		Name: i.name, InputStream: bytes.NewReader(i.context), OutputStream: &output, Context: ctx,
		RmTmpContainer: true, ForceRmTmpContainer: true, Labels: map[string]string{label: "image"},
	})
	if err != nil {
		return fmt.Errorf("build %s: %w: %s", i.name, err, bytes.TrimSpace(output.Bytes()))
	}
	return nil
}
