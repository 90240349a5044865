#!/usr/bin/env bash
# Certificates and keys for one federation: certificates.sh FOLDER HOST NODES
# FOLDER/ca.crt goes to every node and to whoever starts runs; server.pem and server.key stay with the SuperLink; node-N
# (private) goes to node N, node-N.pub is registered at the SuperLink.
set -euo pipefail
folder=$1 host=$2 nodes=$3
mkdir -p "$folder" && cd "$folder" && umask 077
[[ $host =~ ^[0-9.]+$ ]] && name="IP:$host" || name="DNS:$host"

openssl req -x509 -newkey rsa:3072 -nodes -days 365 -subj "/CN=federation" -keyout ca.key -out ca.crt \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign"
openssl req -newkey rsa:3072 -nodes -subj "/CN=$host" -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out server.pem \
  -extfile <(printf "subjectAltName=%s\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n" "$name")

for ((i = 0; i < nodes; i++)); do
  ssh-keygen -q -t ecdsa -b 384 -N "" -C "" -f "node-$i"
done
