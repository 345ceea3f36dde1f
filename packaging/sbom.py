#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sbom.py SOURCE OUT: writes SPDX 2.3 documents for the files of a release that lie in OUT, and validates them by spdx-tools.

zoff-VERSION.spdx.json describes the source tarball. Nothing in it comes from elsewhere; it lists what a build links, in the
versions of this Debian or Ubuntu, and what is optional. A wheel has a document of its own, because it contains libraries: those
that python/wheel/dependencies compiles. scripts/release runs this with SOURCE_DATE_EPOCH set."""
import datetime
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid

from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

# Name, licence, the package that a build needs (None: not in Debian), and whether every build links it.
LINKED = (
    ("glibc", "LGPL-2.1-or-later", "libc6-dev", True),
    ("liburing", "LGPL-2.1-or-later OR MIT", "liburing-dev", True),
    ("numactl", "LGPL-2.1-only", "libnuma-dev", True),
    ("jansson", "MIT", "libjansson-dev", True),
    ("xxhash", "BSD-2-Clause", "libxxhash-dev", True),
    ("libzip", "BSD-3-Clause", "libzip-dev", False),
    ("openmpi", "BSD-3-Clause", "libopenmpi-dev", False),
    ("cuda-cudart", "LicenseRef-NVIDIA-CUDA-EULA", None, False),
    ("nccl", "BSD-3-Clause", None, False),
)
LICENCES = {name: licence for name, licence, _, _ in LINKED}


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def package(name, version, licence, purl, file=None, checksum=None):
    found = {"SPDXID": f"SPDXRef-{name}", "name": name, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
             "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": "NOASSERTION"}
    if version:
        found["versionInfo"] = version
    if file:
        found["packageFileName"] = file
    if checksum:
        found["checksums"] = [{"algorithm": "SHA256", "checksumValue": checksum}]
    found["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]
    return found


def document(out, file, packages, relations):
    """Write the document of one file: its package is the first of the list. A relation is (id, type, id)."""
    path = os.path.join(out, re.sub(r"\.tar\.xz$", "", file) + ".spdx.json")
    digest = packages[0]["checksums"][0]["checksumValue"]
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    text = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": file,
        # The address that SPDX gives to creators without a host; the file's sum makes it unique.
        "documentNamespace": f"https://spdx.org/spdxdocs/{file}-{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Organization: The zoff authors", "Tool: zoff-packaging-sbom.py"]},
        "packages": packages,
        "relationships": [{"spdxElementId": a, "relationshipType": how, "relatedSpdxElement": b}
                          for a, how, b in [("SPDXRef-DOCUMENT", "DESCRIBES", packages[0]["SPDXID"]), *relations]],
    }
    if any("LicenseRef-NVIDIA-CUDA-EULA" == one["licenseDeclared"] for one in packages):
        text["hasExtractedLicensingInfos"] = [{
            "licenseId": "LicenseRef-NVIDIA-CUDA-EULA", "name": "CUDA Toolkit End User License Agreement",
            "extractedText": "https://docs.nvidia.com/cuda/eula/index.html"}]
    with open(path, "w", encoding="utf-8") as to:
        json.dump(text, to, indent=1, ensure_ascii=False)
        to.write("\n")
    messages = validate_full_spdx_document(parse_file(path))
    if messages:
        sys.exit(f"{path}: " + "; ".join(message.validation_message for message in messages))
    print(f"{os.path.basename(path)}: {len(packages)} packages, valid")


def of_distribution(name, licence, debian):
    """A package that a build here links, or one without a version."""
    if not debian:
        return package(name, None, licence, f"pkg:generic/{name}")
    said = subprocess.run(["dpkg-query", "--show", "--showformat=${source:Upstream-Version} ${Version} ${Architecture}", debian],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if said.returncode:
        sys.exit(f"{debian} is not installed: run scripts/install-deps")
    upstream, version, architecture = said.stdout.split()
    with open("/etc/os-release", encoding="utf-8") as file:
        distribution = re.search(r"^ID=(\w+)", file.read(), re.M).group(1)
    return package(name, upstream, licence, f"pkg:deb/{distribution}/{debian}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}")


def main():
    source, out = sys.argv[1:]
    with open(os.path.join(source, "CMakeLists.txt"), encoding="utf-8") as file:
        version = re.search(r"^project\(zoff VERSION ([\d.]+)", file.read(), re.M).group(1)
    tarball = f"zoff-{version}.tar.xz"
    tarball_sum = sha256(os.path.join(out, tarball))
    zoff = package("zoff", version, "Apache-2.0", f"pkg:generic/zoff@{version}?checksum=sha256:{tarball_sum}", tarball, tarball_sum)
    packages, relations = [zoff], []
    for name, licence, debian, always in LINKED:
        packages.append(of_distribution(name, licence, debian))
        relations.append((zoff["SPDXID"], "DYNAMIC_LINK", f"SPDXRef-{name}") if always else
                         (f"SPDXRef-{name}", "OPTIONAL_DEPENDENCY_OF", zoff["SPDXID"]))
    document(out, tarball, packages, relations)

    with open(os.path.join(source, "python/wheel/dependencies"), encoding="utf-8") as file:
        bundled = re.findall(r"^unpack (\S+/([a-z]+)_([\d.]+)\.orig\.tar\.gz) ([0-9a-f]{64})$", file.read(), re.M)
    for path in sorted(glob.glob(os.path.join(out, "*.whl"))):
        file = os.path.basename(path)
        wheel = package("zoff-wheel", version, "Apache-2.0", f"pkg:pypi/zoff@{version}?file_name={file}", file, sha256(path))
        glibc = re.search(r"manylinux_(\d+)_(\d+)_", file)
        packages = [wheel, zoff, package("glibc", f">={glibc.group(1)}.{glibc.group(2)}", LICENCES["glibc"], "pkg:generic/glibc")]
        relations = [(wheel["SPDXID"], "GENERATED_FROM", zoff["SPDXID"]), (wheel["SPDXID"], "DYNAMIC_LINK", "SPDXRef-glibc")]
        for where, name, its_version, digest in bundled:
            packages.append(package(name, its_version, LICENCES[name], f"pkg:generic/{name}@{its_version}?checksum=sha256:{digest}"
                                    f"&download_url=http://deb.debian.org/debian/pool/main/{where}", where.rsplit("/", 1)[1], digest))
            relations += [(wheel["SPDXID"], "CONTAINS", f"SPDXRef-{name}"), (wheel["SPDXID"], "STATIC_LINK", f"SPDXRef-{name}")]
        document(out, file, packages, relations)


if __name__ == "__main__":
    main()
